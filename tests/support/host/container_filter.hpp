// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The default seccomp filters of containers, as far as they matter to a program without capabilities: the calls that
/// they refuse, and the errors.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <span>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <vector>

namespace pinfold::testing {

struct refused_call {
  std::uint32_t number;
  std::uint16_t error;
};

inline constexpr std::uint32_t io_uring_setup_number = 425, io_uring_register_number = 427, mseal_number = 462;

using refused_calls = std::vector<refused_call>;

/// Returns what both filters refuse, and `more`. Calls that the filter does not know fail with `unknown`.
inline refused_calls refused_by_both(std::uint16_t unknown, std::initializer_list<std::uint32_t> more) {
  refused_calls all;
  for (const long one : {SYS_userfaultfd, SYS_bpf, SYS_perf_event_open, SYS_process_madvise, SYS_kcmp, SYS_mbind,
                         SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages, SYS_migrate_pages})
    all.push_back({static_cast<std::uint32_t>(one), EPERM});
  for (const std::uint32_t one :
       {io_uring_setup_number, io_uring_setup_number + 1, io_uring_register_number, mseal_number})
    all.push_back({one, unknown});
  for (const std::uint32_t one : more) all.push_back({one, EPERM});
  return all;
}

/// The filter of Docker and containerd, which is Kubernetes's RuntimeDefault. Since Docker 25 it refuses io_uring, too.
inline refused_calls refused_by_docker() {
  auto all = refused_by_both(
      EPERM, {SYS_pidfd_getfd, SYS_add_key, SYS_keyctl, SYS_mount, SYS_umount2, SYS_unshare, SYS_setns});
  all.push_back({SYS_clone3, ENOSYS});
  return all;
}

/// The filter of Podman and CRI-O: calls that the filter does not know fail with ENOSYS.
inline refused_calls refused_by_podman() {
  return refused_by_both(ENOSYS,
                         {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_membarrier, SYS_vmsplice});
}

/// Installs the filter for the calling thread and all that it starts, for good. Returns false when the kernel has no
/// filters.
inline bool refuse_calls(std::span<const refused_call> refused) {
  std::vector<sock_filter> program;
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  program.push_back(load(offsetof(seccomp_data, nr)));
  for (const auto& one : refused) {
    program.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one.number, 0, 1));
    program.push_back(sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | one.error));
  }
  program.push_back(sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Enters a user namespace of its own: the process has every capability inside it, and none outside. Returns false
/// where that is not allowed.
inline bool enter_user_namespace() { return ::unshare(CLONE_NEWUSER) == 0; }

}  // namespace pinfold::testing

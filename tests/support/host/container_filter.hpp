// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The default seccomp filters of containers, as far as they matter to a program without capabilities: the calls that
/// they refuse, and the errors.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
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

/// The filter of Docker and containerd, which is Kubernetes's RuntimeDefault. Since Docker 25 it refuses io_uring, too.
inline constexpr std::array docker_refuses{
    refused_call{SYS_userfaultfd, EPERM},
    refused_call{io_uring_setup_number, EPERM},
    refused_call{io_uring_setup_number + 1, EPERM},
    refused_call{io_uring_register_number, EPERM},
    refused_call{SYS_bpf, EPERM},
    refused_call{SYS_perf_event_open, EPERM},
    refused_call{SYS_process_madvise, EPERM},
    refused_call{SYS_pidfd_getfd, EPERM},
    refused_call{SYS_kcmp, EPERM},
    refused_call{SYS_mbind, EPERM},
    refused_call{SYS_set_mempolicy, EPERM},
    refused_call{SYS_get_mempolicy, EPERM},
    refused_call{SYS_move_pages, EPERM},
    refused_call{SYS_migrate_pages, EPERM},
    refused_call{SYS_add_key, EPERM},
    refused_call{SYS_keyctl, EPERM},
    refused_call{SYS_mount, EPERM},
    refused_call{SYS_umount2, EPERM},
    refused_call{SYS_unshare, EPERM},
    refused_call{SYS_setns, EPERM},
    refused_call{SYS_clone3, ENOSYS},
    refused_call{mseal_number, EPERM},
};

/// The filter of Podman and CRI-O: calls that the filter does not know fail with ENOSYS.
inline constexpr std::array podman_refuses{
    refused_call{SYS_userfaultfd, EPERM},
    refused_call{io_uring_setup_number, ENOSYS},
    refused_call{io_uring_setup_number + 1, ENOSYS},
    refused_call{io_uring_register_number, ENOSYS},
    refused_call{SYS_bpf, EPERM},
    refused_call{SYS_perf_event_open, EPERM},
    refused_call{SYS_process_madvise, EPERM},
    refused_call{SYS_process_vm_readv, EPERM},
    refused_call{SYS_process_vm_writev, EPERM},
    refused_call{SYS_ptrace, EPERM},
    refused_call{SYS_kcmp, EPERM},
    refused_call{SYS_membarrier, EPERM},
    refused_call{SYS_vmsplice, EPERM},
    refused_call{SYS_mbind, EPERM},
    refused_call{SYS_set_mempolicy, EPERM},
    refused_call{SYS_get_mempolicy, EPERM},
    refused_call{SYS_move_pages, EPERM},
    refused_call{SYS_migrate_pages, EPERM},
    refused_call{mseal_number, ENOSYS},
};

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

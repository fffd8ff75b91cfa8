// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Drops privileges that a test has as root.
#pragma once

#include <array>
#include <linux/capability.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::testing {

/// While it lives, the calling thread may trace only the processes that an unprivileged user may trace.
class without_ptrace_privilege {
 public:
  without_ptrace_privilege() {
    if (::syscall(SYS_capget, &header_, before_.data()) != 0) throw std::runtime_error("capget failed");
    auto lower = before_;
    lower[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
    if (::syscall(SYS_capset, &header_, lower.data()) != 0) throw std::runtime_error("capset failed");
  }
  without_ptrace_privilege(const without_ptrace_privilege&) = delete;
  without_ptrace_privilege& operator=(const without_ptrace_privilege&) = delete;
  ~without_ptrace_privilege() { ::syscall(SYS_capset, &header_, before_.data()); }

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

/// Becomes a user without privileges, for good. Returns false when that is not allowed.
inline bool become_nobody() {
  constexpr unsigned int nobody = 65534;
  return ::setresgid(nobody, nobody, nobody) == 0 && ::setresuid(nobody, nobody, nobody) == 0;
}

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The error codes of failed system calls.
#pragma once

#include "os/file.hpp"

#include <pinfold/error.hpp>

#include <cerrno>

namespace pinfold::monitors {

[[nodiscard]] constexpr errc bpf_code_for(int native) noexcept {
  switch (native) {
    case EAGAIN: return errc::timed_out;
    case ENOENT:
    case ECONNREFUSED: return errc::unsupported;
    case EPIPE:
    case ECONNRESET: return errc::peer_gone;
    default: return os::code_for(native);
  }
}

/// Returns the last system call's failure.
[[nodiscard]] inline tl::unexpected<error> bpf_fail(const char* message) noexcept {
  const int native = errno;
  return fail_errno(bpf_code_for(native), native, message);
}

}  // namespace pinfold::monitors

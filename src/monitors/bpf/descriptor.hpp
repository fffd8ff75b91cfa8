// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A file descriptor that is closed exactly once, and the error codes of failed system calls.
#pragma once

#include <pinfold/error.hpp>

#include <cerrno>
#include <unistd.h>
#include <utility>

namespace pinfold::monitors {

/// Owns a descriptor, or nothing. Move-only, not thread-safe, safe after fork.
class bpf_descriptor {
 public:
  bpf_descriptor() noexcept = default;
  explicit bpf_descriptor(int owned) noexcept : number_(owned) {}
  bpf_descriptor(bpf_descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  bpf_descriptor& operator=(bpf_descriptor&& other) noexcept {
    bpf_descriptor taken(std::move(other));
    std::swap(number_, taken.number_);
    return *this;
  }
  ~bpf_descriptor() { close(); }

  void close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

  /// Returns the descriptor's number, or -1 when this owns none.
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Returns the code for an `errno` value.
[[nodiscard]] constexpr errc bpf_code_for(int native) noexcept {
  switch (native) {
    case EPERM:
    case EACCES: return errc::not_permitted;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC: return errc::out_of_resources;
    case EAGAIN: return errc::timed_out;
    case ENOSYS:
    case ENOENT:
    case ECONNREFUSED: return errc::unsupported;
    case EPIPE:
    case ECONNRESET: return errc::peer_gone;
    default: return errc::driver_error;
  }
}

/// Returns the last system call's failure.
[[nodiscard]] inline tl::unexpected<error> bpf_fail(const char* message) noexcept {
  const int native = errno;
  return fail_errno(bpf_code_for(native), native, message);
}

}  // namespace pinfold::monitors

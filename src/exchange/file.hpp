// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A file descriptor that is closed exactly once, and what a failed system call about one means.
#pragma once

#include <pinfold/error.hpp>

#include <cerrno>
#include <chrono>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace pinfold::exchange {

/// Owns a descriptor, or nothing. Move-only, not thread-safe, safe in signal handlers and after fork.
class file {
 public:
  file() noexcept = default;
  explicit file(int owned) noexcept : number_(owned) {}
  file(file&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  file& operator=(file&& other) noexcept {
    file taken(std::move(other));
    std::swap(number_, taken.number_);
    return *this;
  }
  ~file() {
    if (number_ >= 0) ::close(number_);
  }

  /// -1 when it owns nothing.
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Whether there is something to read, or an end to be seen, within that time. A pidfd is readable once its process
/// ended.
[[nodiscard]] inline bool readable_within(const file& watched, std::chrono::milliseconds patience) noexcept {
  pollfd one{.fd = watched.number(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&one, 1, static_cast<int>(patience.count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/// The code for an `errno` value: the ones that mean "no room" everywhere, else `otherwise`.
[[nodiscard]] constexpr errc code_for(int native, errc otherwise = errc::driver_error) noexcept {
  switch (native) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EAGAIN:
    case ETOOMANYREFS: return errc::out_of_resources;
    case ENOSYS: return errc::unsupported;
    case EPERM:
    case EACCES: return errc::not_permitted;
    default: return otherwise;
  }
}

/// The last system call's failure.
[[nodiscard]] inline tl::unexpected<error> fail_system(const char* message) noexcept {
  const int native = errno;
  return fail_errno(code_for(native), native, message);
}

}  // namespace pinfold::exchange

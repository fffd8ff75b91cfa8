// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A file descriptor that is closed exactly once, and the error codes of failed system calls.
#pragma once

#include "os/no_cancellation.hpp"

#include <pinfold/error.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

namespace pinfold::os {

/// Closes the number, without cancellation: close is a cancellation point. By libc's function, which tools such as
/// ThreadSanitizer watch. Safe in signal handlers.
inline void close_number(int number) noexcept {
  const detail::no_cancellation whole;
  ::close(number);
}

/// Returns `owned`, or a copy of it with a number above 2 if its number is 0, 1 or 2. A program that closed its
/// standard output still prints to number 1, and would print into the library's file. If no number is left, returns -1,
/// with `errno` set and `owned` closed. Safe in signal handlers.
[[nodiscard]] inline int above_standard(int owned) noexcept {
  if (owned < 0 || owned > STDERR_FILENO) return owned;
  const int higher = ::fcntl(owned, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int native = errno == EINVAL ? EMFILE : errno;  // EINVAL: RLIMIT_NOFILE is 3 or less
  close_number(owned);
  if (higher < 0) errno = native;
  return higher;
}

/// The number of a file's inode and of its device; both are 0 for none.
struct inode {
  dev_t device = 0;
  ino_t number = 0;
  friend bool operator==(const inode&, const inode&) noexcept = default;
};

/// Returns the inode at the path, from `folder` on, or of the descriptor `folder` if the path is empty. Does not wait
/// for a file system that asks a process or another host (FUSE, NFS), where the kernel knows statx(2). Keeps `errno`.
/// Safe in signal handlers.
[[nodiscard]] inline inode inode_at(int folder, const char* path) noexcept {
  const int before = errno;
  inode found;
  struct statx seen{};
  if (::statx(folder, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &seen) == 0) {
    found = {makedev(seen.stx_dev_major, seen.stx_dev_minor), seen.stx_ino};
  } else if (errno != EBADF) {  // a filter, or an old kernel
    struct stat old{};
    if (::fstatat(folder, path, &old, AT_EMPTY_PATH) == 0) found = {old.st_dev, old.st_ino};
  }
  errno = before;
  return found;
}

/// Owns a descriptor, or nothing. Move-only, not thread-safe, safe in signal handlers and after fork.
///
/// A program may close descriptors that it does not own (closefrom(3)), and then get the same numbers for its own
/// files. So a `file` remembers its inode, and closes the number only while it refers to that inode. Files without an
/// inode of their own (eventfd, and pidfd before Linux 6.9) cannot be distinguished from others of their kind.
///
/// Never keeps the numbers 0, 1 and 2 (`above_standard`): a `file` made of one of them has another number; if none is
/// left, it owns nothing, and `errno` is set.
class file {
 public:
  file() noexcept = default;
  explicit file(int owned) noexcept : number_(above_standard(owned)), inode_(inode_behind(number_)) {}
  file(file&& other) noexcept : number_(std::exchange(other.number_, -1)), inode_(other.inode_) {}
  file& operator=(file&& other) noexcept {
    file taken(std::move(other));
    std::swap(number_, taken.number_);
    std::swap(inode_, taken.inode_);
    return *this;
  }
  ~file() {
    if (still_there()) close_number(number_);
  }

  /// Returns whether the number still refers to the file that it was given for.
  [[nodiscard]] bool still_there() const noexcept { return number_ >= 0 && inode_behind(number_) == inode_; }

  /// Returns the descriptor's number, or -1 if it owns none.
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  static inode inode_behind(int descriptor) noexcept { return descriptor < 0 ? inode() : inode_at(descriptor, ""); }

  int number_ = -1;
  inode inode_{};
};

/// Returns whether data, or the end of the stream, can be read within that time, however many signals arrive meanwhile.
/// A pidfd is readable once its process has ended.
[[nodiscard]] inline bool readable_within(const file& watched, std::chrono::milliseconds timeout) noexcept {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + timeout;
  pollfd one{.fd = watched.number(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&one, 1, static_cast<int>(timeout.count()));
    if (ready >= 0 || errno != EINTR)  // the program may have closed the number meanwhile, or reused it
      return ready > 0 && (one.revents & POLLNVAL) == 0 && watched.still_there();
    timeout = std::chrono::ceil<std::chrono::milliseconds>(std::max(deadline - steady_clock::now(), {}));
  }
}

/// Returns the code for an `errno` value: `out_of_resources`, `unsupported` or `not_permitted` where the value always
/// means that, else `otherwise`.
[[nodiscard]] constexpr errc code_for(int native, errc otherwise = errc::driver_error) noexcept {
  switch (native) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EFBIG:
    case EAGAIN:
    case ETOOMANYREFS: return errc::out_of_resources;
    case ENOSYS: return errc::unsupported;
    case EPERM:
    case EACCES: return errc::not_permitted;
    default: return otherwise;
  }
}

/// Returns the last system call's failure.
[[nodiscard]] inline tl::unexpected<error> fail_system(const char* message) noexcept {
  const int native = errno;
  return fail_errno(code_for(native), native, message);
}

}  // namespace pinfold::os

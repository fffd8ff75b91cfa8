// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Calls that make files larger, in programs with a limit on the size of files.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

/// Calls `grow`, which may make a file larger, and returns its result and `errno`. Where the file would exceed
/// RLIMIT_FSIZE, the call fails with EFBIG; without this function, the kernel would send SIGXFSZ too, which ends the
/// process. A comparison with the limit before the call would not do: another process may append meanwhile. Safe in
/// signal handlers.
template <class Grow>
auto within_size_limit(Grow&& grow) noexcept {
  sigset_t only;
  sigset_t earlier;
  sigset_t before;
  ::sigemptyset(&only);
  ::sigaddset(&only, SIGXFSZ);
  ::sigpending(&earlier);
  ::pthread_sigmask(SIG_BLOCK, &only, &before);
  const auto outcome = grow();
  const int native = errno;
  constexpr timespec at_once{};
  constexpr std::size_t bytes_of_set = 8;  // in the kernel
  // As a system call: sigtimedwait is a cancellation point.
  if (::sigismember(&earlier, SIGXFSZ) == 0) ::syscall(SYS_rt_sigtimedwait, &only, nullptr, &at_once, bytes_of_set);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = native;
  return outcome;
}

}  // namespace pinfold::os

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes calls that write, without the signals that the kernel sends for some of their errors and that end the process.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

/// Makes a call that may cause these signals in this thread, takes them back, and returns its result and `errno`. Safe
/// in signal handlers.
template <class Call>
auto without_signals(std::initializer_list<int> caused, Call&& call) noexcept {
  sigset_t all;
  sigset_t earlier;
  sigset_t before;
  ::sigemptyset(&all);
  for (const int one : caused) ::sigaddset(&all, one);
  ::sigpending(&earlier);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto outcome = call();
  const int native = errno;
  for (const int one : caused)
    if (::sigismember(&earlier, one) != 0) ::sigdelset(&all, one);
  constexpr timespec at_once{};
  constexpr std::size_t bytes_of_set = 8;  // in the kernel
  // As a system call: sigtimedwait is a cancellation point.
  while (::syscall(SYS_rt_sigtimedwait, &all, nullptr, &at_once, bytes_of_set) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = native;
  return outcome;
}

/// Calls `grow`, which may make a file larger. Where the file would exceed RLIMIT_FSIZE, the call fails with EFBIG; the
/// kernel would send SIGXFSZ too. A check of the limit before the call would not suffice: another process may append
/// meanwhile.
template <class Grow>
auto within_size_limit(Grow&& grow) noexcept {
  return without_signals({SIGXFSZ}, grow);
}

/// Writes to a descriptor of the program, such as standard error: a file with a limit, or a pipe or socket whose
/// readers have gone, which is EPIPE.
template <class Write>
auto to_the_program(Write&& write) noexcept {
  return without_signals({SIGXFSZ, SIGPIPE}, write);
}

}  // namespace pinfold::os

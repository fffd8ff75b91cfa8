// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Code, and threads of the library, in which no signal is handled.
#pragma once

#include <csignal>

namespace pinfold::os {

/// Blocks all signals of the calling thread, and of the threads that it starts meanwhile: the application's threads
/// handle them. A call that a handler must not interrupt, as it may fork, has one too.
class all_signals_blocked {
 public:
  all_signals_blocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  all_signals_blocked(const all_signals_blocked&) = delete;
  all_signals_blocked& operator=(const all_signals_blocked&) = delete;
  ~all_signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace pinfold::os

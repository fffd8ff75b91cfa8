// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Blocks signals in code, and in threads of the library.
#pragma once

#include <csignal>

namespace pinfold::os {

/// Blocks all signals in the calling thread, and in the threads that it starts meanwhile: the application's threads
/// handle them. Also for a call that a signal handler must not interrupt, because the handler may fork.
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

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Starting threads of the library that handle no signals.
#pragma once

#include <csignal>

namespace pinfold::os {

/// Blocks all signals of the calling thread, and so of the threads that it starts meanwhile: the application's threads
/// handle them.
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

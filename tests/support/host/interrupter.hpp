// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Signals that interrupt the system calls of a thread, as those of a profiler do.
#pragma once

#include <chrono>
#include <csignal>
#include <pthread.h>
#include <stop_token>
#include <thread>

namespace pinfold::testing {

/// Sends the thread that makes it a signal again and again, so often at most: a wait that starts anew with each ends
/// then.
class interrupter {
 public:
  interrupter(std::chrono::milliseconds every, int times) {
    struct sigaction nothing{};
    nothing.sa_handler = [](int) {};
    nothing.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &nothing, nullptr);
    sender_ = std::jthread([=, to = ::pthread_self()](const std::stop_token& end) {
      for (int i = 0; i < times && !end.stop_requested(); ++i) {
        std::this_thread::sleep_for(every);
        ::pthread_kill(to, SIGUSR1);
      }
    });
  }

 private:
  std::jthread sender_;
};

}  // namespace pinfold::testing

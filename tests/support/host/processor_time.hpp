// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The processor time of processes: for tests of threads that must not spin.
#pragma once

#include <chrono>
#include <ctime>
#include <sys/types.h>
#include <thread>

namespace pinfold::testing {

/// Returns the processor time that a process has taken; 0 is this process. Needs no descriptor.
inline std::chrono::nanoseconds processor_time(pid_t process = 0) {
  clockid_t clock{};
  timespec taken{};
  ::clock_getcpuclockid(process, &clock);
  ::clock_gettime(clock, &taken);
  return std::chrono::seconds(taken.tv_sec) + std::chrono::nanoseconds(taken.tv_nsec);
}

/// Returns whether a process takes hardly any processor time: in one of several such times, as its threads may come to
/// their waits late on a busy machine.
inline bool rests(pid_t process = 0) {
  using namespace std::chrono_literals;
  for (int tries = 0; tries < 5; ++tries) {
    const auto before = processor_time(process);
    std::this_thread::sleep_for(1000ms);
    if (processor_time(process) - before < 50ms) return true;
  }
  return false;
}

}  // namespace pinfold::testing

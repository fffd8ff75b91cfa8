// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Processes whose main thread has ended while others run, as after pthread_exit(3) in `main`.
#pragma once

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/syscall.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {

/// Ends the main thread, on which it is called. Another thread runs `body`, whose result is the exit status.
template <class Body>
[[noreturn]] void end_main_thread(Body body) {
  std::thread([body = std::move(body)] { std::_Exit(body()); }).detach();
  for (;;) ::syscall(SYS_exit, 0);  // pthread_exit would unwind the test's frames
}

/// Waits until the process's main thread has ended. Returns false where it does not within a minute.
inline bool wait_for_end_of_main_thread(pid_t process) {
  for (int i = 0; i < 60'000; ++i) {
    std::ifstream from("/proc/" + std::to_string(process) + "/stat");
    const std::string line((std::istreambuf_iterator<char>(from)), {});
    const auto name_end = line.rfind(')');
    if (name_end != std::string::npos && line.substr(name_end, 4) == ") Z ") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace pinfold::testing

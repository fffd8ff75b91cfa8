// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A child process that stops itself at a step of the release protocol, and what it counts of its own resources.
#pragma once

#include "release/steps.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing {

using release::step;

/// Steps that the test's own importer reaches around the driver.
inline constexpr auto driver_opening = static_cast<step>(101);  ///< admitted; the memory is not mapped
inline constexpr auto driver_opened = static_cast<step>(102);   ///< mapped; the cache has no entry yet
inline constexpr auto driver_closing = static_cast<step>(103);  ///< the cache has retired the entry; it is mapped

/// The step at which this process stops, the nth time that a thread reaches it.
struct stop_order {
  step at = step::none;
  int nth = 1;
};

inline std::atomic<step> stops_at{step::none};
inline std::atomic<int> times_until_stop{0};

/// Stops the process: the calling thread executes nothing more before SIGCONT, and the others stop too.
inline void stop_at(step reached) noexcept {
  if (reached == stops_at.load() && times_until_stop.fetch_sub(1) == 1) ::raise(SIGSTOP);
}

/// Waits until the other threads of this process sleep. A thread of the library that has answered, and was preempted
/// before it reached the step behind that, would stop the process too early.
inline void wait_for_other_threads() {
  using namespace std::chrono_literals;
  const auto sleeps = [](const std::filesystem::path& task) {
    std::ifstream file(task / "stat");
    std::string stat;
    const bool known = static_cast<bool>(std::getline(file, stat));
    return !known || stat.at(stat.rfind(')') + 2) == 'S';  // not known: it has just ended
  };
  const auto rest = [&] {
    const auto own = std::to_string(::gettid());
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::all_of(begin(tasks), end(tasks),
                       [&](const auto& one) { return one.path().filename() == own || sleeps(one.path()); });
  };
  while (!rest()) std::this_thread::sleep_for(1ms);
}

/// From now on this process stops at that step. What its other threads are doing ends before.
inline void arm(const stop_order& order) {
  wait_for_other_threads();
  times_until_stop.store(order.nth);
  stops_at.store(order.at);
  release::at_step.store(stop_at);
}

/// What a process has open.
struct footprint {
  int descriptors = 0;
  int mappings = 0;  ///< of memfds
  int threads = 0;
  friend bool operator==(const footprint&, const footprint&) noexcept = default;

  [[nodiscard]] static footprint here() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return {open_descriptors(), memfd_mappings(), static_cast<int>(std::distance(begin(tasks), end(tasks)))};
  }
};

/// Makes `receive` on that line give up after `limit`: a process that hangs must not hang the test.
inline void limit_waits(line& to, std::chrono::seconds limit) {
  const timeval time{.tv_sec = limit.count(), .tv_usec = 0};
  if (::setsockopt(to.number(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) != 0)
    throw std::runtime_error("cannot limit the time of a receive");
}

/// Waits until the child has stopped itself. Returns false if it has not within a minute.
[[nodiscard]] inline bool stopped_itself(const child_process& child) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < deadline) {
    siginfo_t seen{};
    if (::waitid(P_PID, static_cast<id_t>(child.pid()), &seen, WSTOPPED | WNOHANG) == 0 && seen.si_pid != 0)
      return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// What a test does to a process that has stopped at a step.
enum class deed : std::uint8_t { kill, stop_then_go_on, stop_then_kill };

[[nodiscard]] inline const char* name_of(deed one) noexcept {
  switch (one) {
    case deed::kill: return "killed";
    case deed::stop_then_go_on: return "stopped_and_continued";
    case deed::stop_then_kill: return "stopped_and_killed";
  }
  return "";
}

}  // namespace pinfold::testing

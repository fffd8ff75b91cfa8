// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The reaper's thread (R60): started, woken, and stopped. What it does is in `engine_reaper.cpp`.
#pragma once

#include "core/deadlines.hpp"
#include "os/check.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace pinfold::core {

/// A thread that works until it is asked to stop. Its mutex comes after the shards' mutexes.
class reaper_thread {
 public:
  /// Starts the thread, which calls `run(home)`. Throws `std::system_error`.
  template <class Home>
  void start(void (*run)(Home*) noexcept, Home* home) {
    PINFOLD_ASSERT(!runs_, "the thread is started once");
    runs_ = true;
    thread_ = std::thread(run, home);
  }
  /// Ends the next wait, or the present one. Any thread.
  void wake() noexcept {
    {
      const std::scoped_lock guard(mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  }
  /// Asks the thread to stop, and waits until it called `say_left`. Returns false when the deadline came first: then
  /// the thread ends by itself.
  [[nodiscard]] bool stop(deadline until) noexcept {
    if (!thread_.joinable()) return true;
    bool ended = false;
    {
      std::unique_lock guard(mutex_);
      stops_ = true;
      wake_.notify_one();
      ended = left_.wait_until(guard, until, [this] { return !runs_; });
    }
    ended ? thread_.join() : thread_.detach();
    return ended;
  }

  // Called by the thread itself.
  [[nodiscard]] bool stops() const noexcept {
    const std::scoped_lock guard(mutex_);
    return stops_;
  }
  /// Waits until the thread is woken or has to stop, at most `longest` if given. Returns false if it has to stop.
  [[nodiscard]] bool wait(std::optional<std::chrono::milliseconds> longest) noexcept {
    const auto ready = [this] { return woken_ || stops_; };
    std::unique_lock guard(mutex_);
    if (longest) {
      wake_.wait_for(guard, *longest, ready);
    } else {
      wake_.wait(guard, ready);
    }
    woken_ = false;
    return !stops_;
  }
  /// Notes that the thread calls no driver any more.
  void say_left() noexcept {
    const std::scoped_lock guard(mutex_);
    PINFOLD_ASSERT(runs_, "the thread leaves once");
    runs_ = false;
    left_.notify_one();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;
  bool woken_ = false;
  bool runs_ = false;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Stops the library's threads inside the driver, so that a model runs one thread at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

namespace pinfold::testing {

/// Shared by the model and by the driver.
class worker_gate {
 public:
  /// The place where a thread of the library stands in the driver.
  class stop {
    friend worker_gate;
    bool go = false;
    std::function<void()> job;
  };

  /// Called by the driver for each open. Stops the thread if the model waits for it.
  void come() {
    stop here;
    std::unique_lock guard(mutex_);
    if (!awaits_) return;
    awaits_ = false;
    arrived_ = &here;
    changed_.notify_all();
    changed_.wait(guard, [&] { return here.go || open_; });
    guard.unlock();
    if (here.job) here.job();
  }

  /// Lets all threads go, and stops none any more.
  void open() {
    const std::scoped_lock guard(mutex_);
    awaits_ = false;
    open_ = true;
    changed_.notify_all();
  }

  /// Calls `start`, which makes one thread of the library run, and waits until that thread comes to the driver, or
  /// `ended()`. Returns where it stands; null if it has ended.
  template <class Start, class Ended>
  stop* run(Start&& start, Ended&& ended) {
    {
      const std::scoped_lock guard(mutex_);
      awaits_ = true;
      arrived_ = nullptr;
    }
    start();
    for (;;) {
      {
        std::unique_lock guard(mutex_);
        changed_.wait_for(guard, std::chrono::microseconds{20}, [this] { return arrived_ != nullptr; });
        if (arrived_ != nullptr) return std::exchange(arrived_, nullptr);
      }
      if (!ended()) continue;
      const std::scoped_lock guard(mutex_);
      awaits_ = false;
      return nullptr;
    }
  }

  /// Lets a thread go on, after it has done a job inside the driver. Otherwise as `run`.
  template <class Ended>
  stop* go_on(stop* from, Ended&& ended, std::function<void()> job = {}) {
    return run(
        [&] {
          const std::scoped_lock guard(mutex_);
          from->job = std::move(job);
          from->go = true;
          changed_.notify_all();
        },
        std::forward<Ended>(ended));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool awaits_ = false;      // the next thread that comes is to stop
  stop* arrived_ = nullptr;  // where it stands
  bool open_ = false;
};

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Ends a test that hangs, and prints what the test was waiting for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace pinfold::testing {

/// Unless `beat()` is called at least once every four minutes, prints the report and ends the process with status 1. On
/// a machine where all processors have much else to do, nothing less tells a test that hangs from one that waits for
/// its turn.
class watchdog {
 public:
  explicit watchdog(std::function<void()> report) : report_(std::move(report)), thread_([this] { watch(); }) {}

  ~watchdog() {
    {
      std::lock_guard guard(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  void beat() noexcept { beats_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    auto seen = beats_.load();
    while (!wake_.wait_for(lock, timeout, [this] { return stop_; })) {
      const auto now = beats_.load();
      if (now == seen) {
        std::fprintf(stderr, "watchdog: no progress for %lld s\n", static_cast<long long>(timeout.count()));
        report_();
        std::fflush(nullptr);
        std::_Exit(1);
      }
      seen = now;
    }
  }

  static constexpr std::chrono::seconds timeout{240};  // below the limit of ctest, which reports nothing

  std::function<void()> report_;
  std::atomic<unsigned long> beats_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;  // last: the thread uses the other members
};

}  // namespace pinfold::testing

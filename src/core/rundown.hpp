// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Admits calls until an object ends, and waits for those in progress.
#pragma once

#include "core/deadlines.hpp"
#include "os/check.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace pinfold::core {

/// Counts calls of background threads, or such threads. Thread-safe.
class rundown {
 public:
  /// Admits one call; returns false after `stop`.
  [[nodiscard]] bool enter() noexcept {
    const std::scoped_lock guard(mutex_);
    if (stopped_) return false;
    ++inside_;
    return true;
  }
  void leave() noexcept {
    const std::scoped_lock guard(mutex_);
    PINFOLD_ASSERT(inside_ > 0, "what leaves was let in");
    if (--inside_ == 0) empty_.notify_all();
  }
  [[nodiscard]] bool stopped() const noexcept {
    const std::scoped_lock guard(mutex_);
    return stopped_;
  }

  /// Refuses further calls.
  void stop() noexcept {
    const std::scoped_lock guard(mutex_);
    stopped_ = true;
  }
  /// Waits until no call is in progress. Returns false if the deadline came first.
  [[nodiscard]] bool wait_until(deadline until) noexcept {
    std::unique_lock guard(mutex_);
    return empty_.wait_until(guard, until, [this] { return inside_ == 0; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::size_t inside_ = 0;
  bool stopped_ = false;
};

}  // namespace pinfold::core

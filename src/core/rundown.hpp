// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lets calls in until an object ends, and waits for those that are inside.
#pragma once

#include "core/deadlines.hpp"
#include "os/check.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace pinfold::core {

/// Counts the calls of background threads. Thread-safe.
class rundown {
 public:
  /// Lets a call in; returns false after `stop`.
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

  /// Lets no call in any more.
  void stop() noexcept {
    const std::scoped_lock guard(mutex_);
    stopped_ = true;
  }
  /// Waits until no call is inside. Returns false when the deadline came first.
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

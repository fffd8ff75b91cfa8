// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The longest of many times.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tool {

/// Keeps the longest time that any thread noted. Any thread.
class longest_time {
 public:
  void note(std::chrono::nanoseconds took) noexcept {
    auto known = ns_.load(std::memory_order_relaxed);
    while (known < took.count() && !ns_.compare_exchange_weak(known, took.count(), std::memory_order_relaxed)) {
    }
  }

  /// Returns the longest so far, in seconds; 0 if there was none.
  [[nodiscard]] double seconds() const noexcept {
    return static_cast<double>(ns_.load(std::memory_order_relaxed)) * 1e-9;
  }

 private:
  std::atomic<std::int64_t> ns_{0};
};

}  // namespace tool

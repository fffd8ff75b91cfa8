// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Limits how many bytes per second the workers of one registration register together.
#pragma once

#include "os/check.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pinfold::detail {

/// A token bucket without burst: a piece may begin when the time of all earlier pieces is over, so the first begins at
/// once, and idle time is not saved up. Thread-safe.
class rate_limit {
 public:
  using clock = std::chrono::steady_clock;

  /// 0: no limit.
  explicit rate_limit(std::uint64_t bytes_per_second) noexcept : per_second_(bytes_per_second) {}

  /// Reserves the time of a piece, and returns the time at which the piece may begin: `now`, or later.
  [[nodiscard]] clock::time_point reserve(std::uint64_t bytes, clock::time_point now) noexcept {
    if (per_second_ == 0) return now;
    const auto cost = time_of(bytes);
    auto free = free_.load(std::memory_order_relaxed);
    for (;;) {
      const auto begin = std::max(free, now.time_since_epoch().count());
      const auto end = begin > latest - cost ? latest : begin + cost;
      PINFOLD_ASSERT(cost >= 0 && free >= 0, "the time of all pieces only grows");
      if (free_.compare_exchange_weak(free, end, std::memory_order_relaxed))
        return clock::time_point(clock::duration(begin));
    }
  }

  /// Forgets all reserved times. No thread may be waiting for one.
  void forget() noexcept { free_.store(0, std::memory_order_relaxed); }

 private:
  using ticks = clock::duration::rep;
  static constexpr ticks latest = clock::duration::max().count() / 2;  // half of the range: sums do not overflow

  [[nodiscard]] ticks time_of(std::uint64_t bytes) const noexcept {
    constexpr auto second = static_cast<double>(clock::duration(std::chrono::seconds(1)).count());
    const auto cost = static_cast<double>(bytes) / static_cast<double>(per_second_) * second;
    return cost < static_cast<double>(latest) ? static_cast<ticks>(cost) : latest;
  }

  const std::uint64_t per_second_;
  std::atomic<ticks> free_{0};  // since the clock's epoch: when the time of all reserved pieces is over
};

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The times at which a cache looks for idle entries.
#pragma once

#include "core/ticks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace pinfold::core {

/// The timer of the sweep for idle entries. Two sweeps are one time-out apart, so that an entry is closed between one
/// and two time-outs after its last use. Not thread-safe: guarded by the shard's mutex.
class idle_sweep {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Makes a timer, which is never due if `timeout` is 0.
  explicit idle_sweep(milliseconds timeout) noexcept
      : apart_(std::clamp(timeout, milliseconds(0), longest)), last_(ticks()) {}

  [[nodiscard]] bool wanted() const noexcept { return apart_ > milliseconds(0); }
  [[nodiscard]] milliseconds apart() const noexcept { return apart_; }

  /// Returns whether a sweep is due. If so, the next one is due `apart_` from now.
  [[nodiscard]] bool due() noexcept {
    if (!wanted()) return false;
    const auto now = ticks();
    if (since(last_, now) < apart_) return false;
    last_ = now;
    return true;
  }

 private:
  static constexpr milliseconds longest = std::chrono::hours(24 * 365);  // ticks wrap after two years

  milliseconds apart_;
  std::uint32_t last_;
};

}  // namespace pinfold::core

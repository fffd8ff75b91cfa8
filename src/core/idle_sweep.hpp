// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// When the entries of a cache are looked at for those that are idle too long.
#pragma once

#include "core/ticks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace pinfold::core {

/// Two sweeps are the time-out apart, so that an entry goes between one and two of it after its last use. Not
/// thread-safe: guarded by the engine's mutex.
class idle_sweep {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Never due when `timeout` is 0.
  explicit idle_sweep(milliseconds timeout) noexcept
      : apart_(std::clamp(timeout, milliseconds(0), longest)), last_(ticks()) {}

  [[nodiscard]] bool wanted() const noexcept { return apart_ > milliseconds(0); }
  [[nodiscard]] milliseconds apart() const noexcept { return apart_; }

  /// Whether the time has come; then the next is `apart` from now.
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

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Deadlines that do not overflow.
#pragma once

#include <algorithm>
#include <chrono>

namespace pinfold::release {

/// Returns the deadline of a wait that begins now, in a day at most: `milliseconds::max()` from now is in the past.
[[nodiscard]] inline std::chrono::steady_clock::time_point deadline_in(std::chrono::milliseconds timeout) noexcept {
  constexpr std::chrono::milliseconds longest = std::chrono::hours{24};
  return std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds{0}, longest);
}

}  // namespace pinfold::release

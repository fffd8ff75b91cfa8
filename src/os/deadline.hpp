// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Deadlines that do not overflow.
#pragma once

#include <algorithm>
#include <chrono>

namespace pinfold::os {

/// Returns the deadline of a wait that begins now, in `longest` at most: now plus `milliseconds::max()` is in the past.
[[nodiscard]] inline std::chrono::steady_clock::time_point deadline_in(std::chrono::milliseconds timeout,
                                                                       std::chrono::milliseconds longest) noexcept {
  return std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds{0}, longest);
}

}  // namespace pinfold::os

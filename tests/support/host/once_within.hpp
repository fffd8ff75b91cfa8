// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Bounds on time that a loaded machine meets too.
#pragma once

#include <chrono>
#include <utility>

namespace pinfold::testing {

/// Returns whether one of several calls takes less than `bound`. In a single one the thread may lose its processor to
/// others; code that waits does so in each.
template <class F>
[[nodiscard]] bool once_within(std::chrono::nanoseconds bound, F&& call) {
  constexpr int tries = 20;
  for (int i = 0; i < tries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::forward<F>(call)();
    if (std::chrono::steady_clock::now() - start < bound) return true;
  }
  return false;
}

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Places on the closing side where a test may make a thread wait, to have the others do what should not matter. The
/// hits' side has PINFOLD_POINT in <pinfold/detail/hit.hpp>.
#pragma once

#include <atomic>

namespace pinfold::core {

/// Called at every such place, under the engine's mutex; null outside of tests.
inline std::atomic<void (*)() noexcept> at_point{nullptr};

inline void point() noexcept {
  if (auto* call = at_point.load(std::memory_order_relaxed)) call();
}

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Points in the closing code where a test may stop a thread while other threads go on: the outcome must not depend on
/// it. Hits have PINFOLD_SYNC_POINT in <pinfold/detail/hit.hpp>.
#pragma once

#include <atomic>

namespace pinfold::core {

/// Called at every such point, under the shard's mutex; null outside of tests.
inline std::atomic<void (*)() noexcept> at_point{nullptr};

inline void sync_point() noexcept {
  if (auto* call = at_point.load(std::memory_order_relaxed)) call();
}

}  // namespace pinfold::core

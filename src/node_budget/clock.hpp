// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The clock that all processes of a host share.
#pragma once

#include <chrono>
#include <cstdint>

namespace pinfold::node {

/// Returns the monotonic clock's nanoseconds.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace pinfold::node

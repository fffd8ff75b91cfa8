// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Times of the C interface.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace pinfold::c {

/// Returns milliseconds within the range of a signed number; the library shortens timeouts that are too long.
[[nodiscard]] inline std::chrono::milliseconds as_timeout(std::uint64_t given) noexcept {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(given, INT64_MAX)));
}

}  // namespace pinfold::c

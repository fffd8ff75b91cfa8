// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Pages under a range. Not for users; it may change in any release. The first call opens /proc/thread-self/maps and
/// keeps the descriptor open for good.
#pragma once

#include <pinfold/export.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::detail {

/// Returns the range, rounded out to `granularity`, a power of 2. Never wraps around.
[[nodiscard]] constexpr range aligned_out(const range& exact, std::size_t granularity) noexcept {
  const auto more = granularity - 1;
  return {exact.begin & ~more, exact.end > UINTPTR_MAX - more ? exact.end : (exact.end + more) & ~more};
}

/// Returns the range, rounded out to `granularity` (a power of 2), and to the page size of its mapping if that is
/// larger, as with hugetlbfs (R24). Never exceeds the pages that the range touches, and never wraps around.
[[nodiscard]] PINFOLD_EXPORT range rounded_out(const range& exact, std::size_t granularity) noexcept;

/// Returns whether both addresses lie in one mapping, so that ranges which touch there may be registered as one. False
/// if the kernel cannot say.
[[nodiscard]] PINFOLD_EXPORT bool same_mapping(std::uintptr_t a, std::uintptr_t b) noexcept;

}  // namespace pinfold::detail

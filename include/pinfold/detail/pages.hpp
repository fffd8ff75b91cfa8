// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Pages under a range. Not for users; it may change in any release. Who asks here keeps one descriptor of
/// /proc/self/maps open for good.
#pragma once

#include <pinfold/export.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::detail {

/// The range, rounded out to `granularity`, a power of 2. Wraps nowhere.
[[nodiscard]] constexpr range aligned_out(const range& exact, std::size_t granularity) noexcept {
  const auto more = granularity - 1;
  return {exact.begin & ~more, exact.end > UINTPTR_MAX - more ? exact.end : (exact.end + more) & ~more};
}

/// The range, rounded out to `granularity` (a power of 2), and to the page of its mapping where that is larger, as in
/// hugetlbfs (R24). Never more than the pages that the range touches. Wraps nowhere.
[[nodiscard]] PINFOLD_EXPORT range rounded_out(const range& exact, std::size_t granularity) noexcept;

/// Whether both addresses lie in one mapping, so that what touches there may be registered as one. False where the
/// kernel cannot say.
[[nodiscard]] PINFOLD_EXPORT bool same_mapping(std::uintptr_t a, std::uintptr_t b) noexcept;

}  // namespace pinfold::detail

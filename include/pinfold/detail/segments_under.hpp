// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Chooses the handles of the segments under a range. Not for users; it may change in any release.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <algorithm>
#include <vector>

namespace pinfold::detail {

/// A segment of a peer's memory.
struct named_segment {
  range where;         ///< its range in the peer
  const void* handle;  ///< the caller's

  /// Returns the part of the range that lies in the segment.
  [[nodiscard]] range part_of(const range& wanted) const noexcept {
    return {std::max(where.begin, wanted.begin), std::min(where.end, wanted.end)};
  }
};

/// Sorts segments that touch the range by address. Errors: `invalid_handle` (two of them overlap), `invalid_range`
/// (they do not cover the range).
[[nodiscard]] inline result<void> sort_to_cover(std::vector<named_segment>& all, const range& wanted) noexcept {
  std::sort(all.begin(), all.end(),
            [](const named_segment& left, const named_segment& right) { return left.where.begin < right.where.begin; });
  auto at = wanted.begin;
  for (const auto& one : all) {
    if (one.where.begin < at && &one != &all.front())
      return fail(errc::invalid_handle, "two handles are for the same memory");
    if (one.where.begin > at) break;
    at = one.where.end;
  }
  if (at < wanted.end) return fail(errc::invalid_range, "a part of the range has no handle");
  return {};
}

}  // namespace pinfold::detail

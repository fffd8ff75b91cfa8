// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The order in which a set of caches is asked. Not for users; it may change in any release.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/set_options.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pinfold::detail {

/// The choices of one request in the order in which they are asked, in tiers: the choices of a tier are asked together.
struct set_plan {
  std::vector<std::size_t> order;  ///< the numbers of the choices
  std::vector<std::size_t> ends;   ///< the end of each tier in `order`
  std::size_t required = 0;        ///< how many must succeed
  bool may_fail = false;           ///< whether a choice that fails is skipped
  bool parallel = true;            ///< whether the choices of a tier are registered at the same time
};

/// Returns the plan for `choices` choices. `distances` are those of the choices, for `near_first`. Throws
/// std::bad_alloc. Errors: `invalid_argument` (`required`, or an unknown policy).
[[nodiscard]] PINFOLD_EXPORT result<set_plan> plan_set(const set_options& how, std::size_t choices,
                                                       std::span<const std::uint32_t> distances);

/// The calls that a set makes on one choice. No function may throw.
struct set_calls {
  void* self;                                              ///< passed to the functions
  bool (*find)(void* self, std::size_t choice);            ///< takes a lease if the memory is registered already
  void (*acquire)(void* self, std::size_t choice);         ///< takes a lease, or stores a failure; on any thread
  const error* (*failed)(void* self, std::size_t choice);  ///< returns the failure; null if there is none
};

/// Asks the choices as planned, until enough have succeeded. Throws std::bad_alloc. Returns the failure of the first
/// choice that failed, in the order of choices, if too few succeeded; the caller then drops what it has.
[[nodiscard]] PINFOLD_EXPORT result<void> ask_members(const set_plan& plan, const set_calls& calls);

}  // namespace pinfold::detail

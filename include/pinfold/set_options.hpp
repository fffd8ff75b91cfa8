// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a `cache_set` does with its members: which it asks, in which order, and how many must succeed.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/limits.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pinfold {

class shared_dma_buf;

/// The order in which a set asks the chosen members.
enum class set_policy : std::uint8_t {
  /// All at once. Those that have to register do so in parallel, each on a thread of its own.
  all,
  /// At once those that are near the memory; each other one at its first `set_lease::at`.
  near_first,
  /// One after the other on the caller's thread, in the order in which they were chosen. For back ends that accept one
  /// thread only.
  fixed_order,
};

/// The value of `set_options::required` for all members that the call asks.
inline constexpr std::size_t every_member = unlimited;

/// Returns how far a member is from the memory; less is nearer. Only the order of distances matters. The set calls it
/// on the thread of the caller.
using member_distance = std::function<std::uint32_t(std::size_t member, const range& memory)>;

/// Options of one acquire of a set.
struct set_options {
  set_policy policy = set_policy::all;  ///< which members are asked, and when

  /// How many members must succeed, from 1 to the number of chosen members. By default none of those that the call
  /// asks may fail: with `near_first` all near ones must succeed. If a number is given, members that fail are skipped,
  /// and `set_lease::failures` names them; `near_first` then asks the next nearest ones until so many have succeeded.
  std::size_t required = every_member;

  /// For `near_first`. By default the distances that the set was made with.
  member_distance distance{};
  /// For `near_first`: members that are at most this much farther away than the nearest one are near, too.
  std::uint32_t near_margin = 0;

  /// For device memory: exports the dma-buf of an allocation once for all members that the call asks. The members'
  /// registrars have to ask it (`verbs_registrar_options::dma_buf_from`). Null: each exports for itself.
  shared_dma_buf* dma_bufs = nullptr;
};

/// A member of a set that failed, and why.
struct member_failure {
  std::size_t member;  ///< its number in the set
  error why;           ///< with the driver's own code
};

}  // namespace pinfold

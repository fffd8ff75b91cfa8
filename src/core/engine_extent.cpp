// SPDX-License-Identifier: BSD-3-Clause
// The extent to register for a request that overlaps registrations (R62). As always, entries that the new one covers
// are retired when it is published (`supersede`).
#include "core/engine_opening.hpp"

#include <algorithm>

namespace pinfold::detail {

namespace {

range hull(const range& a, const range& b) noexcept { return {std::min(a.begin, b.begin), std::max(a.end, b.end)}; }

}  // namespace

core::extent_to_open engine_opening::plain_extent(const request& what, const range& extent,
                                                  const lookup_result& seen) noexcept {
  const auto access = what.need | seen.around;
  // Rounding to pages would give a peer access to memory outside of the request.
  if (any_remote(access) && !(what.wanted == extent)) return {what.wanted, access, false, false, seen.borrowed};
  return {extent, access, true, false, seen.borrowed};
}

bool engine_opening::merges(const request& what) const noexcept {
  return options_.merge != merge_policy::none && !driver_.imports() && !what.unshared && !what.unbudgeted;
}

core::extent_to_open engine_opening::merged_extent(shard& in, const request& what, const range& extent,
                                                   const lookup_result& seen) const noexcept {
  const extent_to_open alone = plain_extent(what, extent, seen);
  if (!seen.near) return alone;
  extent_to_open both = merged(in, what, alone);
  // Merging extends an entry's remote access to the request, but must not extend it to the request's whole pages.
  if (any_remote(both.access) && !any_remote(alone.access)) both = merged(in, what, {what.wanted, alone.access, false});
  return both.merged && may_register(what, both) ? both : alone;
}

// Grows by one entry at a time, as each may overlap further ones.
core::extent_to_open engine_opening::merged(shard& in, const request& what, extent_to_open from) const noexcept {
  const auto grow = [&](entry& one) {
    in.mutex.says_held();
    const bool mergeable = one.findable() && one.now() != entry_state::opening && !one.persistent && !one.bypass &&
                           !in.pending.affects(one) &&  // not marked yet, but its memory may be going away
                           (options_.merge == merge_policy::overlaps || one.covered().contains(what.wanted));
    if (!mergeable) return false;
    const extent_to_open larger{hull(from.covered, one.covered()), from.access | one.access, false, true};
    const bool grows = !(larger.covered == from.covered) || larger.access != from.access;
    const bool within = larger.covered.size() <= options_.merge_limit || larger.covered == one.covered();
    if (!grows || !within || !budget_.can_ever_hold(larger.covered.size())) return false;
    from = larger;
    return true;
  };
  while (in.table.find_overlap(what.peer, range(from.covered), grow) != nullptr) {
  }
  return from;
}

// Returns whether the registrar accepts a request for the whole extent.
bool engine_opening::may_register(const request& what, const extent_to_open& all) const noexcept {
  request whole = what;
  whole.wanted = all.covered;
  whole.need = all.access;
  return driver_.check(whole).has_value();
}

}  // namespace pinfold::detail

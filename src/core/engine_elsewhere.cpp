// SPDX-License-Identifier: BSD-3-Clause
// Entries of other shards around a request: those that serve it, those that it supersedes, and those that supersede it.
#include "core/engine_requests.hpp"

namespace pinfold::detail {

// Returns false if no other shard has an entry that overlaps the extent. May return true where none does.
bool engine_requests::any_elsewhere(const shard& in, peer_id peer, const range& extent) noexcept {
  for (shard& each : shards_.others(shards_.map().overlapping(extent), in)) {
    lookup_result seen;
    os::scoped_lock guard(each.mutex);
    if (!each.table.finds_alone(peer, extent, seen)) return true;
  }
  return false;
}

// Looks in the other shards that may have entries of that extent. Returns the result of the request, or nothing if it
// has to be opened.
std::optional<result<grant>> engine_requests::look_elsewhere(const shard& in, const request& what, const range& extent,
                                                             overlaps_elsewhere& other) noexcept {
  for (shard& each : shards_.others(shards_.map().overlapping(extent), in)) {
    os::scoped_lock guard(each.mutex);
    if (auto served = look_in(each, what, extent, other)) return served;
  }
  return {};
}

std::optional<result<grant>> engine_requests::look_in(shard& other, const request& what, const range& extent,
                                                      overlaps_elsewhere& seen) noexcept {
  const deadlines until(options_);
  while (!other.table.ended()) {
    lookup_result found;
    other.table.scan(what, extent, found);
    seen.around = seen.around | found.around;
    seen.beside = seen.beside || found.beside;
    if (found.match == nullptr) break;
    const bool open = found.match->now() != entry_state::opening;
    auto served = open ? hit(other, *found.match, what) : join(other, *found.match, what, until);
    if (served && served->held == 0) continue;
    other.counts.add(counter::acquires);
    if (!served) return refused(other, served.error());
    return served;
  }
  return {};
}

// After a miss: retires the entries of other shards that the new one covers, and the new one if another thread
// published an entry in another shard that covers it. Order: publish; if wide, `count_wide`; look. Of
// two racing threads at least one sees the other's entry.
void engine_requests::supersede_elsewhere(shard& in, const record& fresh, const overlaps_elsewhere& other) noexcept {
  if (!other.wide && shards_.map().wide_published() == other.wide_before) [[likely]]
    return;
  const range covered = fresh.covered();
  const entry& one = index::record_page::entry_of(&fresh);  // not reused, as the caller's lease pins it
  if (other.wide) {
    shards_.map().count_wide();
    if (!still_findable(in, one)) return;
    for (shard& each : shards_.others(shards_.map().overlapping(covered), in)) {
      os::scoped_lock guard(each.mutex);
      each.table.supersede(covered, one.access, nullptr);
      settle(each);
    }
  }
  if (shards_.map().wide_published() == other.wide_before + (other.wide ? 1 : 0)) return;
  if (!covered_elsewhere(in, one)) return;
  os::scoped_lock guard(in.mutex);
  in.table.retire_covered(index::record_page::entry_of(&fresh));
  settle(in);
}

bool engine_requests::still_findable(shard& in, const entry& fresh) noexcept {
  os::scoped_lock guard(in.mutex);
  return fresh.findable();
}

bool engine_requests::covered_elsewhere(const shard& in, const entry& fresh) noexcept {
  for (shard& each : shards_.others(shards_.map().containing(fresh.covered()), in)) {
    os::scoped_lock guard(each.mutex);
    if (each.table.covers(fresh)) return true;
  }
  return false;
}

// After a conflict: the obstacle may be an entry of another shard, published after the first look, that serves the
// request.
void engine_requests::look_again_elsewhere(const shard& in, const request& what, const range& extent,
                                           overlaps_elsewhere& other, result<grant>& granted) noexcept {
  if (granted.error().code != errc::in_use_conflict || shards_.map().one() || what.unshared) return;
  if (const auto served = look_elsewhere(in, what, extent, other); served && served->has_value()) granted = *served;
}

}  // namespace pinfold::detail

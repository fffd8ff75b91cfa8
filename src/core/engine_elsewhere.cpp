// SPDX-License-Identifier: BSD-3-Clause
// What other shards have of the memory of a request: what serves it, what it supersedes, and what supersedes it.
#include "core/engine.hpp"

namespace pinfold::detail {

// Returns false if no other shard has an entry that overlaps the extent. May return true where none does.
bool engine::any_elsewhere(const shard& in, peer_id peer, const range& extent) noexcept {
  bool found = false;
  core::for_each_shard(shards_.map().overlapping(extent), [&](std::size_t number) {
    shard& each = shards_[number];
    if (&each == &in || found) return;
    lookup_result seen;
    os::scoped_lock guard(each.mutex);
    found = !each.table.finds_alone(peer, extent, seen);
  });
  return found;
}

// Looks in the other shards that may have entries of that extent. Returns what the request is served with, or nothing
// when it has to be opened.
std::optional<result<grant>> engine::look_elsewhere(const shard& in, const request& what, const range& extent,
                                                    overlaps_elsewhere& other) noexcept {
  std::optional<result<grant>> served;
  core::for_each_shard(shards_.map().overlapping(extent), [&](std::size_t number) {
    shard& each = shards_[number];
    if (&each == &in || served) return;
    os::scoped_lock guard(each.mutex);
    served = look_in(each, what, extent, other);
  });
  return served;
}

std::optional<result<grant>> engine::look_in(shard& other, const request& what, const range& extent,
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
// published an entry in another shard that covers it. Order: publish; if wide, increment `wide_published_`; look. Of
// two racing threads at least one sees the other's entry.
void engine::supersede_elsewhere(shard& in, const record& fresh, const overlaps_elsewhere& other) noexcept {
  if (!other.wide && wide_published_.load(std::memory_order_seq_cst) == other.wide_before) [[likely]]
    return;
  const range covered = fresh.covered();
  const entry& one = index::record_page::entry_of(&fresh);  // pinned by the caller's lease, so it is the same
  if (other.wide) {
    wide_published_.fetch_add(1, std::memory_order_seq_cst);
    if (!still_findable(in, one)) return;
    core::for_each_shard(shards_.map().overlapping(covered), [&](std::size_t number) {
      shard& each = shards_[number];
      if (&each == &in) return;
      os::scoped_lock guard(each.mutex);
      each.table.supersede(covered, one.access, nullptr);
      settle(each);
    });
  }
  if (wide_published_.load(std::memory_order_seq_cst) == other.wide_before + (other.wide ? 1 : 0)) return;
  if (!covered_elsewhere(in, one)) return;
  os::scoped_lock guard(in.mutex);
  in.table.retire_covered(index::record_page::entry_of(&fresh));
  settle(in);
}

bool engine::still_findable(shard& in, const entry& fresh) noexcept {
  os::scoped_lock guard(in.mutex);
  return fresh.findable();
}

bool engine::covered_elsewhere(const shard& in, const entry& fresh) noexcept {
  bool found = false;
  core::for_each_shard(shards_.map().containing(fresh.covered()), [&](std::size_t number) {
    shard& each = shards_[number];
    if (&each == &in || found) return;
    os::scoped_lock guard(each.mutex);
    found = each.table.covers(fresh);
  });
  return found;
}

// After a conflict: the obstacle may be an entry of another shard, published after the first look, that serves the
// request.
void engine::look_again_elsewhere(const shard& in, const request& what, const range& extent, overlaps_elsewhere& other,
                                  result<grant>& granted) noexcept {
  if (granted.error().code != errc::in_use_conflict || shards_.map().one() || what.unshared) return;
  if (const auto served = look_elsewhere(in, what, extent, other); served && served->has_value()) granted = *served;
}

}  // namespace pinfold::detail

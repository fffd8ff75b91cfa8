// SPDX-License-Identifier: BSD-3-Clause
// The driver says "already mapped": exactly the entries that overlap the new allocation are in the way (R6).
#include "core/engine_room.hpp"
#include "core/neighbours.hpp"

#include <algorithm>

namespace pinfold::detail {

namespace {

// The entries in the way of an open, by the action that each needs.
struct obstacles {
  entry* leased = nullptr;    // pinned
  entry* moving = nullptr;    // another thread opens or closes it
  entry* closable = nullptr;  // can be closed now

  void add(entry& one, bool due) noexcept {
    switch (one.now()) {
      case entry_state::opening:
        // An opener that waits, as this thread does, has nothing open in the driver, and may itself wait for this
        // thread.
        if (one.in_driver) moving = &one;
        break;
      case entry_state::closing: moving = &one; break;
      default:
        if (!due && one.pins() > 0) {
          leased = &one;
        } else if (closable == nullptr || !one.findable() || closable->findable()) {
          closable = &one;  // an entry whose close is due comes first
        }
    }
  }
};

// How often an opener calls the driver again because an entry was closed in another shard.
constexpr unsigned most_asked = 8;

error as_conflict(error refused) noexcept {
  refused.code = errc::in_use_conflict;
  return refused;
}

}  // namespace

// Returns whether no lease can hold the entry, so that any pin on it is transient.
bool engine_room::unpinned_for_good(shard& in, const entry& one) const noexcept {
  if (one.now() == entry_state::quarantined) return !open_waiter::waits(in.open_waiters, one);
  return one.now() == entry_state::evicting || one.in == index::list_id::queued;
}

// Returns until when a request waits for the pins on an entry.
core::deadline engine_room::end_of_conflict(const entry& pinned, const deadlines& until) const noexcept {
  return core::entry_table::may_be_transient(pinned) ? std::max(until.conflicts(), pace_.end_of_transient(until))
                                                     : until.conflicts();
}

// Stops the hits on a live entry. Returns false if a hit pinned it.
bool engine_room::evictable(shard& in, entry& live) noexcept {
  PINFOLD_ASSERT(live.now() == entry_state::live, "an evicting entry is closable already");
  in.table.begin_evict(live);
  settle(in);
  return live.now() == entry_state::evicting;
}

result<void> engine_room::clear_conflicts(shard& in, entry& opening, const error& refused, const closes_known& before,
                                          const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "the driver refused this open");
  const bool disturbed = opening.disturbed;
  auto changed = clear_overlaps(in, opening.peer(), opening.covered(), &opening, refused, until);
  if (changed && !*changed && shards_.size() > 1) changed = clear_overlaps_elsewhere(in, opening, refused, until);
  if (!changed) return tl::unexpected(changed.error());
  // No entry of this cache is in the way any more. If none ever was, the application itself holds the mapping.
  bool moved = *changed || disturbed || opening.disturbed;
  if (shards_.size() > 1) moved = moved || (before.asked < most_asked && driver_.closed_since(before));
  if (!moved && driver_.table().exclusive_in_process && before.asked < most_asked)
    moved = cleared_in_other_caches(in, opening);
  return moved ? result<void>{} : tl::unexpected(as_conflict(refused));
}

bool engine_room::cleared_in_other_caches(shard& in, const entry& opening) noexcept {
  const auto where = opening.covered();
  const os::scoped_unlock free(in.mutex);
  return core::neighbour::close_idle(driver_.name(), where, &in.engine);
}

result<bool> engine_room::clear_overlaps_elsewhere(shard& in, entry& opening, const error& refused,
                                                   const deadlines& until) noexcept {
  const auto where = opening.covered();
  const os::scoped_unlock free(in.mutex);
  bool changed = false;
  for (shard& other : shards_.others(shards_.map().overlapping(where), in)) {
    os::scoped_lock guard(other.mutex);
    const auto now = clear_overlaps(other, {}, where, nullptr, refused, until);
    if (!now) return now;
    changed = changed || *now;
  }
  return changed;
}

// Closes the entries of one shard that overlap the range. Returns whether there were any.
result<bool> engine_room::clear_overlaps(shard& in, peer_id peer, const range& where, const entry* opening,
                                         const error& refused, const deadlines& until) noexcept {
  bool changed = false;
  release_watch watch(changes_);
  for (;;) {
    obstacles found;
    const auto note = [&](entry& one) {
      in.mutex.says_held();
      if (&one != opening) found.add(one, unpinned_for_good(in, one));
      return false;
    };
    in.table.visit_overlaps(peer, where, note);

    if (found.leased != nullptr) {
      // While other threads hit, the sum of the pins on a hittable entry is inexact.
      if (found.leased->now() == entry_state::live && ledger::others() > 0 && evictable(in, *found.leased)) continue;
      if (!wait_for_release(in, watch, end_of_conflict(*found.leased, until)))
        return tl::unexpected(as_conflict(refused));
    } else if (found.moving != nullptr) {
      if (!wait_for(in, found.moving, until.others()))
        return fail(errc::timed_out, "another thread is still opening or closing overlapping memory");
    } else if (found.closable != nullptr) {
      if (found.closable->now() == entry_state::live && !evictable(in, *found.closable)) {  // hit meanwhile
        if (!wait_for_release(in, watch, end_of_conflict(*found.closable, until)))
          return tl::unexpected(as_conflict(refused));
        changed = true;
        continue;
      }
      if (found.closable->now() == entry_state::evicting) in.counts.add(counter::conflicts);
      if (auto closed = close(in, *found.closable, event_kind::conflict); !closed)
        return tl::unexpected(as_conflict(closed.error()));
    } else {
      return changed;
    }
    changed = true;
  }
}

}  // namespace pinfold::detail

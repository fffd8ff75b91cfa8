// SPDX-License-Identifier: BSD-3-Clause
// The driver says "already mapped": exactly the entries that overlap the new allocation are in the way (R6).
#include "core/engine.hpp"

#include <algorithm>

namespace pinfold::detail {

namespace {

// The entries in the way of an open, by what has to be done about them.
struct obstacles {
  entry* leased = nullptr;    // pinned
  entry* moving = nullptr;    // another thread's open or close is at work on it
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

error as_conflict(error refused) noexcept {
  refused.code = errc::in_use_conflict;
  return refused;
}

}  // namespace

// Whether no lease can hold the entry, so that any pin on it is transient.
bool engine::unpinned_for_good(const entry& one) const noexcept {
  if (one.now() == entry_state::quarantined) return !open_waiter::waits(open_waiters_, one);
  return one.now() == entry_state::evicting || one.in == index::list_id::queued;
}

// Returns until when a request waits for the pins on an entry.
core::deadline engine::end_of_conflict(const entry& pinned, const deadlines& until) const noexcept {
  return core::entry_table::may_be_transient(pinned) ? std::max(until.conflicts(), end_of_transient(until))
                                                     : until.conflicts();
}

// Takes a live entry out of the reach of hits. Returns false when a hit pinned it.
bool engine::evictable(entry& live) noexcept {
  PINFOLD_ASSERT(live.now() == entry_state::live, "an evicting entry is closable already");
  table_.begin_evict(live);
  settle();
  return live.now() == entry_state::evicting;
}

result<void> engine::clear_conflicts(entry& opening, const error& refused, const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "the driver refused this open");
  bool changed = opening.disturbed;
  release_watch watch;
  for (;;) {
    obstacles found;
    const auto note = [&](entry& one) {
      mutex_is_held();
      if (&one != &opening) found.add(one, unpinned_for_good(one));
      return false;
    };
    table_.find_overlap(opening.peer(), opening.covered(), note);

    if (found.leased != nullptr) {
      // While other threads hit, the sum of the pins on a hittable entry proves nothing.
      if (found.leased->now() == entry_state::live && ledger::others() > 0 && evictable(*found.leased)) continue;
      if (!wait_for_release(watch, end_of_conflict(*found.leased, until))) return tl::unexpected(as_conflict(refused));
    } else if (found.moving != nullptr) {
      if (!wait_for(found.moving, until.others()))
        return fail(errc::timed_out, "another thread is still opening or closing overlapping memory");
    } else if (found.closable != nullptr) {
      if (found.closable->now() == entry_state::live && !evictable(*found.closable)) {  // hit meanwhile
        if (!wait_for_release(watch, end_of_conflict(*found.closable, until)))
          return tl::unexpected(as_conflict(refused));
        changed = true;
        continue;
      }
      if (found.closable->now() == entry_state::evicting) counters_.add(counter::conflicts);
      if (auto closed = close(*found.closable, event_kind::conflict); !closed)
        return tl::unexpected(as_conflict(closed.error()));
    } else {
      // No entry of this cache is in the way any more. If none ever was, the application itself holds the mapping.
      return changed || opening.disturbed ? result<void>{} : tl::unexpected(as_conflict(refused));
    }
    changed = true;
  }
}

}  // namespace pinfold::detail

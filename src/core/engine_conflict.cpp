// SPDX-License-Identifier: BSD-3-Clause
// The driver says "already mapped": exactly what overlaps the new allocation stands in the way (R6).
#include "core/engine.hpp"

#include <algorithm>

namespace pinfold::detail {

namespace {

// What stands in the way of an open, by what has to be done about it.
struct obstacles {
  entry* leased = nullptr;    // somebody uses it
  entry* moving = nullptr;    // another thread's open or close is at work on it
  entry* closable = nullptr;  // nobody needs it

  void add(entry& one, bool due) noexcept {
    switch (one.now()) {
      case entry_state::opening:
        // Another opener that waits, as we do, holds nothing in the driver: waiting for it could be waiting for us.
        if (one.in_driver) moving = &one;
        break;
      case entry_state::closing: moving = &one; break;
      default:
        if (!due && one.pins() > 0) {
          leased = &one;
        } else if (closable == nullptr || !one.findable() || closable->findable()) {
          closable = &one;  // what is due anyway comes first
        }
    }
  }
};

error as_conflict(error refused) noexcept {
  refused.code = errc::in_use_conflict;
  return refused;
}

}  // namespace

// Whether no lease can be on it: a pin there is a transient one.
bool engine::unpinned_for_good(const entry& one) const noexcept {
  if (one.now() == entry_state::quarantined) return !joiner::waits(joiners_, one);
  return one.now() == entry_state::evicting || one.queued;
}

// Until when a request waits for the pins on it.
core::deadline engine::end_of_conflict(const entry& pinned, const patience& until) const noexcept {
  return may_be_transient(pinned) ? std::max(until.conflicts(), end_of_transient(until)) : until.conflicts();
}

result<void> engine::clear_conflicts(entry& opening, const error& refused, const patience& until) noexcept {
  bool changed = opening.disturbed;
  release_watch watch;
  for (;;) {
    obstacles found;
    const auto note = [&](entry& one) {
      mutex_is_held();
      if (&one != &opening) found.add(one, unpinned_for_good(one));
      return false;
    };
    index_.find_overlap(opening.peer(), opening.covered(), note);

    if (found.leased != nullptr) {
      // Where other threads hit, the sum of what is hittable proves nothing.
      if (found.leased->now() == entry_state::live && ledger::others() > 0 && mark_if_idle(*found.leased)) continue;
      if (!wait_for_release(watch, end_of_conflict(*found.leased, until))) return tl::unexpected(as_conflict(refused));
    } else if (found.moving != nullptr) {
      if (!wait_for(found.moving, until.others()))
        return fail(errc::timed_out, "another thread is still busy with overlapping memory");
    } else if (found.closable != nullptr) {
      if (found.closable->now() == entry_state::live && !mark_if_idle(*found.closable)) {  // hit meanwhile
        if (!wait_for_release(watch, end_of_conflict(*found.closable, until)))
          return tl::unexpected(as_conflict(refused));
        changed = true;
        continue;
      }
      if (found.closable->now() == entry_state::evicting) counters_.add(counter::conflicts);
      if (auto closed = close(*found.closable, event_kind::conflict); !closed)
        return tl::unexpected(as_conflict(closed.error()));
    } else {
      // Nothing of ours is left. If nothing of ours ever was, the application holds the mapping itself.
      return changed || opening.disturbed ? result<void>{} : tl::unexpected(as_conflict(refused));
    }
    changed = true;
  }
}

}  // namespace pinfold::detail

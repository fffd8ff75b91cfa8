// SPDX-License-Identifier: BSD-3-Clause
// The driver says "already mapped": exactly what overlaps the new allocation stands in the way (R6).
#include "core/engine.hpp"

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

result<void> engine::clear_conflicts(entry& opening, const error& refused, const patience& until) noexcept {
  bool changed = opening.disturbed;
  release_watch watch;
  for (;;) {
    obstacles found;
    const auto note = [&](entry& one) {
      mutex_is_held();
      // A pin on what is due is no lease: a hit that came too late is taking it back.
      const bool due = one.now() == entry_state::quarantined ? one.pins() == 0 : one.queued;
      if (&one != &opening) found.add(one, due);
      return false;
    };
    index_.find_overlap(opening.peer(), opening.covered(), note);

    if (found.leased != nullptr) {
      if (!wait_for_release(watch, until.conflicts())) return tl::unexpected(as_conflict(refused));
    } else if (found.moving != nullptr) {
      if (!wait_for(found.moving, until.others()))
        return fail(errc::timed_out, "another thread is still busy with overlapping memory");
    } else if (found.closable != nullptr) {
      if (found.closable->now() == entry_state::live && !mark_if_idle(*found.closable)) {  // hit meanwhile
        if (!wait_for_release(watch, until.conflicts())) return tl::unexpected(as_conflict(refused));
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

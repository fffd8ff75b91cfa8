// SPDX-License-Identifier: BSD-3-Clause
// Releases, closes, quarantine.
#include "core/engine.hpp"

namespace pinfold::detail {

namespace {

bool home_of_this_process(const index::control_block& control) noexcept {
  const auto* event_log = invalidation::event_log::if_there();
  return event_log != nullptr && event_log->process() == control.process;
}

}  // namespace

// Finishes the release of a pin on an entry that is not hittable, or while a thread waits for releases. The call
// may be late: if the entry, the engine or even the page has moved on, there is nothing to do.
result<void> engine::finish_release(const record* given_back, asked_by caller, std::uint32_t cache) noexcept {
  auto& page = index::record_page::of(given_back);
  index::control_block* control = page.owner.load(std::memory_order_acquire);
  if (control == nullptr || !home_of_this_process(*control)) return {};
  engine* last = nullptr;
  result<void> closed;
  {
    os::scoped_lock guard(control->guard);
    engine* home = control->home;
    if (home == nullptr || page.owner.load(std::memory_order_relaxed) != control) return {};
    home->mutex_is_held();
    home->waiting_.notify(home);  // threads that wait for room or for a conflict look again
    const bool later = home->defers_closes() || !home->may_close(caller, cache);
    if (!home->orphaned_) closed = home->unpinned(index::record_page::entry_of(given_back), later);
    last = home->leave_if_last();
  }
  destroy(last);
  return closed;
}

// Counts the new pin in the entry. Under the engine's mutex: a thread that sums an entry's pins meanwhile could miss a
// pin that is counted in another place after the thread has looked there.
pin engine::pin_again(pin held) noexcept {
  const record* one = record_of(held);
  index::control_block* control = index::record_page::of(one).owner.load(std::memory_order_acquire);
  const auto count = [one] { index::record_page::entry_of(one).own_pins().fetch_add(1, std::memory_order_seq_cst); };
  if (control == nullptr || !home_of_this_process(*control)) {
    count();
  } else {
    os::scoped_lock guard(control->guard);
    count();
  }
  return reinterpret_cast<pin>(one) | in_entry;
}

// Whether the release of a pin may call the driver. A `find` may not (R48). Nor may a failed hit of another cache,
// whose thread may never have used this one (R57): its hint was a record that belongs to this cache by now.
bool engine::may_close(asked_by caller, std::uint32_t cache) const noexcept {
  return caller == asked_by::acquire && (cache == by_lease || cache == number_);
}

result<void> engine::unpin(entry& held) noexcept {
  held.own_pins().fetch_sub(1, std::memory_order_seq_cst);
  waiting_.notify(this);
  return unpinned(held, defers_closes());
}

// Does what is due when an entry has no pin left; queues the close if it is to be done `later`. Every thread that gives
// a pin back calls this, or has seen that it need not.
result<void> engine::unpinned(entry& freed, bool later) noexcept {
  if (freed.hot()->is(record::hittable) || freed.pins() > 0) return {};
  switch (freed.now()) {
    case entry_state::live:
      if (kept(freed)) return {};
      if (!later) return close(freed);
      retire(freed);
      sort_retired();
      return {};
    case entry_state::draining:
      waiting_.notify(&freed);
      if (freed.queued) return {};
      if (!later) return close(freed);
      draining_pinned_.remove(&freed);
      queue_close(freed);
      return {};
    case entry_state::failed: recycle(freed); return {};
    default: waiting_.notify(&freed); return {};  // quarantined: from now on a thread can retry its close
  }
}

// Requires that `stale` is in no list.
void engine::queue_close(entry& stale) noexcept {
  stale.queued = true;
  queued_.push_back(&stale);
  waiting_.notify(this);  // a close that is due makes room
  wake_reaper();
}

// Takes a closable entry out of its list and out of the hit table.
void engine::detach(entry& closable) noexcept {
  PINFOLD_INVARIANT(!closable.hot()->is(record::hittable), "a hittable entry is not closed");
  switch (closable.now()) {
    case entry_state::live:
    case entry_state::evicting:
      if (closable.now() == entry_state::evicting) evicting_.remove(&closable);
      if (closable.hot()->is(record::listed)) hits_.erase(closable.hot());
      if (reusable(closable)) reusable_.remove(&closable);
      break;
    case entry_state::draining:
      (closable.queued ? queued_ : draining_pinned_).remove(&closable);
      closable.queued = false;
      break;
    default: quarantined_.remove(&closable); counters_.subtract(counter::quarantined);
  }
}

// Closes an entry. Tells the sink `why`, which is absent when the application asked for the close.
result<void> engine::close(entry& closable, std::optional<event_kind> why) noexcept {
  std::optional<event> told;
  if (why && options_.sink)
    told = about(closable, *why, *why == event_kind::evicted ? severity::debug : severity::info);
  detach(closable);
  closable.become(entry_state::closing);
  ++closes_in_flight_;
  const auto object = object_of(closable);
  mutex_.unlock();
  if (told) tell(*told);
  auto closed = call_close(object);
  if (!closed) {
    event failed = about(closable, event_kind::close_failed, severity::failure);
    failed.cause = &closed.error();
    tell(failed);
  }
  mutex_.lock();
  --closes_in_flight_;
  waiting_.notify(&closable);
  waiting_.notify(this);
  if (!closed) {
    counters_.add(counter::failed_closes);
    quarantine(closable);
    return closed;
  }
  counters_.add(counter::closes);
  ++closes_done_;
  leave_index(closable);
  give_room_back(closable);
  tell_overlapping_openings(closable);
  recycle(closable);
  return closed;
}

void engine::quarantine(entry& kept) noexcept {
  kept.become(entry_state::quarantined);
  counters_.add(counter::quarantined);
  quarantined_.push_back(&kept);
  waiting_.notify(&kept);
}

void engine::recycle(entry& done) noexcept {
  done.become(entry_state::free);
  pool_.put(&done);
}

// Marks the openers that the driver may have refused because of this entry, and that have not yet looked for the
// obstacle: they have to ask the driver again.
void engine::tell_overlapping_openings(const entry& closed) noexcept {
  if (asked_now_ == 0) return;
  index_.find_overlap(closed.peer(), closed.covered(), [](entry& one) {
    if (one.in_driver) one.disturbed = true;
    return false;
  });
}

result<void> engine::close_queued(std::size_t at_most) noexcept {
  result<void> first;
  for (std::size_t i = 0; i < at_most && !queued_.empty(); ++i) {
    auto closed = close(*queued_.front());
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::retry_quarantined() noexcept {
  result<void> first;
  for (std::size_t left = quarantined_.size(); left > 0 && !quarantined_.empty(); --left) {
    entry* owed = quarantined_.front();
    if (open_waiter::waits(open_waiters_, *owed)) {  // to read why its open failed; any other pin on it is transient
      quarantined_.remove(owed);
      quarantined_.push_back(owed);
      continue;
    }
    auto closed = close(*owed);
    if (first && !closed) first = closed;
  }
  return first;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Giving back: releases, closes, quarantine.
#include "core/engine.hpp"

namespace pinfold::detail {

namespace {

bool home_of_this_process(const core::gate& gate) noexcept {
  const auto* board = watch::board::if_there();
  return board != nullptr && board->process() == gate.process;
}

}  // namespace

// A pin was given back on an entry that is not simply live, or somebody waits for releases. It may be late: then the
// entry, the engine, even the page may have moved on, and there is nothing to do.
result<void> engine::settle(const record* given_back, asked_by who, std::uint32_t cache) noexcept {
  auto& page = core::record_page::of(given_back);
  core::gate* gate = page.owner.load(std::memory_order_acquire);
  if (gate == nullptr || !home_of_this_process(*gate)) return {};
  engine* last = nullptr;
  result<void> closed;
  {
    core::scoped_lock guard(gate->guard);
    engine* home = gate->home;
    if (home == nullptr || page.owner.load(std::memory_order_relaxed) != gate) return {};
    home->mutex_is_held();
    home->waiting_.notify(home);  // who waits for room or for a conflict looks again
    const bool later = home->defers_closes() || !home->may_close(who, cache);
    if (!home->orphaned_) closed = home->unpinned(core::record_page::entry_of(given_back), later);
    last = home->leave_if_last();
  }
  destroy(last);
  return closed;
}

// Whether a hit that failed may call the driver. `find` does not (R48); nor does a hit in another cache, whose thread
// may never have used this one (R57): what was in that hit's hint is this cache's by now.
bool engine::may_close(asked_by who, std::uint32_t cache) const noexcept {
  return who == asked_by::acquire && (cache == by_lease || cache == number_);
}

result<void> engine::unpin(entry& held) noexcept {
  held.own_pins().fetch_sub(1, std::memory_order_seq_cst);
  waiting_.notify(this);
  return unpinned(held, defers_closes());
}

// Does what is due when an entry has no pin left, except a close that is to be done `later`. Whoever gives a pin back
// comes here, or has seen that it need not.
result<void> engine::unpinned(entry& freed, bool later) noexcept {
  if (freed.hot()->is(record::hittable) || freed.pins() > 0) return {};
  switch (freed.now()) {
    case entry_state::live:
      if (kept(freed)) return {};
      if (!later) return close(freed);
      retire(freed);
      settle_retired();
      return {};
    case entry_state::draining:
      waiting_.notify(&freed);
      if (freed.queued) return {};
      if (!later) return close(freed);
      held_.remove(&freed);
      queue_close(freed);
      return {};
    case entry_state::failed: recycle(freed); return {};
    default: waiting_.notify(&freed); return {};  // quarantined: from now on its close can be retried
  }
}

// Requires that it is in no list.
void engine::queue_close(entry& stale) noexcept {
  stale.queued = true;
  queued_.push_back(&stale);
  waiting_.notify(this);  // a close that is due makes room
  wake_reaper();
}

// Takes a closable entry out of the list that it is in, and where hits could find it.
void engine::detach(entry& closable) noexcept {
  PINFOLD_INVARIANT(!closable.hot()->is(record::hittable), "what can still be hit is not closed");
  switch (closable.now()) {
    case entry_state::live:
    case entry_state::evicting:
      if (closable.now() == entry_state::evicting) marked_.remove(&closable);
      if (closable.hot()->is(record::listed)) hits_.erase(closable.hot());
      if (reusable(closable)) reusable_.remove(&closable);
      break;
    case entry_state::draining:
      (closable.queued ? queued_ : held_).remove(&closable);
      closable.queued = false;
      break;
    default: quarantined_.remove(&closable); counters_.subtract(counter::quarantined);
  }
}

// Tells the sink why, unless that is what its user asked for.
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
  auto closed = driver_.close(driver_.self, object);
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

// An opener that was refused because of this entry, but has not yet come to look why, must know to try again.
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
    if (joiner::waits(joiners_, *owed)) {  // to read why its open failed; any other pin on it is a transient one
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

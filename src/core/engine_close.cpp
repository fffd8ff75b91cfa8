// SPDX-License-Identifier: BSD-3-Clause
// Giving back: releases, closes, quarantine.
#include "core/engine.hpp"

namespace pinfold::detail {

result<void> engine::release(entry* held) noexcept {
  engine& home = *held->owner;
  result<void> closed;
  bool last = false;
  {
    core::scoped_lock guard(home.mutex_);
    closed = home.release_pin(*held);
    last = home.orphaned_ && home.leases_ == 0;
  }
  if (last) delete &home;
  return closed;
}

result<void> engine::release_pin(entry& held) noexcept {
  --leases_;
  counters_.subtract(counter::leases);
  if (held.revoked.load(std::memory_order_relaxed)) return {};
  return unpin(held);
}

result<void> engine::unpin(entry& held) noexcept {
  PINFOLD_INVARIANT(held.pins > 0, "a pin to give back must be there");
  if (--held.pins > 0) return {};
  const bool later = options_.closes == close_policy::deferred;
  waiting_.notify(this);  // who waits for room or for a conflict looks again
  switch (held.now()) {
    case entry_state::live:
      if (held.persistent && !held.bypass) return {};
      if (options_.retain && !held.bypass) {
        idle_.push_back(&held);
        return {};
      }
      if (!later) return close(held, nullptr);
      lookup_.erase(&held);
      hidden_.insert(&held);
      held.become(entry_state::draining);
      queue_close(held);
      return {};
    case entry_state::draining:
      waiting_.notify(&held);
      if (!later) return close(held, nullptr);
      queue_close(held);
      return {};
    case entry_state::failed: recycle(held); return {};
    default: waiting_.notify(&held); return {};  // quarantined: from now on its close can be retried
  }
}

void engine::queue_close(entry& stale) noexcept {
  queued_.push_back(&stale);
  if (options_.reaper) reaper_wake_.notify_one();
}

// Takes a closable entry out of whatever it is in, and hides it.
void engine::detach(entry& closable) noexcept {
  PINFOLD_INVARIANT(closable.pins == 0, "only what nobody holds is closed");
  switch (closable.now()) {
    case entry_state::live:
      // The last release of an entry that is not kept comes here directly, without having been idle.
      if (idle_.holds(closable)) idle_.remove(&closable);
      lookup_.erase(&closable);
      hidden_.insert(&closable);
      break;
    case entry_state::draining:
      if (queued_.holds(closable)) queued_.remove(&closable);
      break;
    default: quarantined_.remove(&closable); counters_.subtract(counter::quarantined);
  }
}

result<void> engine::close(entry& closable, const event* why) noexcept {
  detach(closable);
  closable.become(entry_state::closing);
  ++closes_in_flight_;
  event failed = about(closable, event_kind::close_failed, severity::failure);
  mutex_.unlock();
  if (why != nullptr) tell(*why);
  auto closed = driver_.close(driver_.self, closable.object);
  if (!closed) {
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
  hidden_.erase(&closable);
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
  const auto note = [](entry& one) {
    if (one.now() == entry_state::opening) one.disturbed = true;
    return false;
  };
  lookup_.find_overlap(closed.peer, closed.covered, note);
  hidden_.find_overlap(closed.peer, closed.covered, note);
}

result<void> engine::close_queued(std::size_t at_most) noexcept {
  result<void> first;
  for (std::size_t i = 0; i < at_most && !queued_.empty(); ++i) {
    auto closed = close(*queued_.front(), nullptr);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::retry_quarantined() noexcept {
  result<void> first;
  for (std::size_t left = quarantined_.size(); left > 0 && !quarantined_.empty(); --left) {
    entry* owed = quarantined_.front();
    if (owed->pins > 0) {  // somebody has yet to read why its open failed
      quarantined_.remove(owed);
      quarantined_.push_back(owed);
      continue;
    }
    auto closed = close(*owed, nullptr);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::close_unheld() noexcept {
  auto first = retry_quarantined();
  auto queued = close_queued(SIZE_MAX);
  if (first) first = queued;
  while (!idle_.empty()) {
    auto closed = close(*idle_.front(), nullptr);
    if (first && !closed) first = closed;
  }
  const auto finished = wait_for_closes();
  return first ? finished : first;
}

// What other threads are closing at this moment is nobody's either: the caller wants it gone, too.
result<void> engine::wait_for_closes() noexcept {
  const patience until(options_);
  while (closes_in_flight_ > 0)
    if (!wait_for(this, until.others())) return fail(errc::timed_out, "another thread's close does not end");
  return {};
}

result<void> engine::flush() noexcept {
  core::scoped_lock guard(mutex_);
  return close_unheld();
}

result<void> engine::quiesce() noexcept {
  core::scoped_lock guard(mutex_);
  if (leases_ > 0) return fail(errc::in_use_conflict, "leases are out");
  return close_unheld();
}

result<void> engine::progress() noexcept {
  core::scoped_lock guard(mutex_);
  auto first = close_queued(SIZE_MAX);
  auto retried = retry_quarantined();
  return first ? retried : first;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Memory that is gone: what must not be found any more, and what may be closed again.
#include "core/engine.hpp"
#include "core/point.hpp"

#include <array>

namespace pinfold::detail {

void engine::mark_stale(entry& gone) noexcept {
  history_.remember(gone.peer, gone.covered.begin, miss_reason::invalidated);
  gone.hot->set(record::stale);
  if (gone.findable()) retire(gone);
}

// Takes an entry out of the look-up index for good. `settle_retired` has to follow before the mutex is given up.
void engine::retire(entry& old) noexcept {
  stop_hits(old);
  if (old.hot->is(record::listed)) hits_.erase(old.hot);
  if (old.now() == entry_state::evicting) marked_.remove(&old);
  if (reusable(old)) reusable_.remove(&old);
  lookup_.erase(&old);
  hidden_.insert(&old);
  if (old.now() == entry_state::opening) {
    old.doomed = true;
    return;
  }
  old.become(entry_state::draining);
  retired_.push_back(&old);
}

// Once every thread knows that they cannot be hit any more: those that nobody holds are to be closed, the others will
// be by their last release. Should the barrier fail, `progress` and `flush` look again.
void engine::settle_retired() noexcept {
  if (retired_.empty()) return;
  core::point();
  const bool known = core::order_everywhere();
  core::point();
  while (entry* old = retired_.front()) {
    retired_.remove(old);
    if (old->pins() > 0 || !known) {
      if (old->hot->is(record::stale)) counters_.add(counter::invalidated_while_leased);
    } else {
      queue_close(*old);
    }
  }
}

void engine::invalidate(peer_id peer, const range& gone) noexcept {
  std::array<entry*, 16> hit;
  std::array<event, 16> told;
  std::size_t count = hit.size();
  while (count == hit.size()) {  // in batches, so that the lock is short and nothing is allocated
    count = 0;
    std::size_t held = 0;
    {
      core::scoped_lock guard(mutex_);
      while (count < hit.size()) {
        entry* next = next_to_invalidate(peer, gone);
        if (next == nullptr) break;
        const bool hidden = !next->findable();
        mark_stale(*next);
        if (hidden) counters_.add(counter::invalidated_while_leased);
        hit[count++] = next;
      }
      settle_retired();
      for (std::size_t i = 0; i < count; ++i)
        if (hit[i]->now() == entry_state::draining && hit[i]->pins() > 0)
          told[held++] = about(*hit[i], event_kind::invalidated_while_leased, severity::warning);
    }
    for (std::size_t i = 0; i < held; ++i) tell(told[i]);
  }
}

// What can be found, and then what can not be found any more but is still held.
entry* engine::next_to_invalidate(peer_id peer, const range& gone) const noexcept {
  const auto fresh = [](const entry& one) { return !one.hot->is(record::stale); };
  if (entry* found = lookup_.find_overlap(peer, gone, fresh)) return found;
  return hidden_.find_overlap(peer, gone, [&](const entry& one) {
    return fresh(one) && one.pins() > 0 && one.now() != entry_state::quarantined;
  });
}

void engine::unpersist(peer_id peer, const range& where) noexcept {
  core::scoped_lock guard(mutex_);
  const auto kept = [](const entry& one) { return one.persistent; };
  while (entry* found = lookup_.find_overlap(peer, where, kept)) {
    found->persistent = false;
    if (found->now() != entry_state::live) continue;
    if (reusable(*found)) reusable_.push_back(found);
    static_cast<void>(unpinned(*found));  // a close that fails is kept and told to the sink
  }
}

result<void> engine::drop_peer(peer_id peer) noexcept {
  invalidate(peer, {0, UINTPTR_MAX});
  if (options_.closes == close_policy::deferred) return {};
  core::scoped_lock guard(mutex_);
  return close_queued(SIZE_MAX);
}

}  // namespace pinfold::detail

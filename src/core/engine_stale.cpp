// SPDX-License-Identifier: BSD-3-Clause
// Memory that is gone: what must not be found any more, and what may be closed again.
#include "core/engine.hpp"

#include <array>

namespace pinfold::detail {

void engine::mark_stale(entry& gone) noexcept {
  history_.remember(gone.peer, gone.covered.begin, miss_reason::invalidated);
  gone.stale.store(true, std::memory_order_release);
  if (gone.now() != entry_state::opening && gone.pins > 0) counters_.add(counter::invalidated_while_leased);
  if (gone.findable()) retire(gone);
}

// Takes an entry out of the look-up index for good.
void engine::retire(entry& old) noexcept {
  if (old.idle()) idle_.remove(&old);
  lookup_.erase(&old);
  hidden_.insert(&old);
  if (old.now() == entry_state::opening) {
    old.doomed = true;
    return;
  }
  old.become(entry_state::draining);
  if (old.pins == 0) queue_close(old);
}

void engine::invalidate(peer_id peer, const range& gone) noexcept {
  std::array<event, 16> told;
  std::size_t count = told.size();
  while (count == told.size()) {  // in batches, so that the lock is short and nothing is allocated
    count = 0;
    {
      core::scoped_lock guard(mutex_);
      while (count < told.size()) {
        entry* hit = next_to_invalidate(peer, gone);
        if (hit == nullptr) break;
        if (hit->now() != entry_state::opening && hit->pins > 0)
          told[count++] = about(*hit, event_kind::invalidated_while_leased, severity::warning);
        mark_stale(*hit);
      }
    }
    for (std::size_t i = 0; i < count; ++i) tell(told[i]);
  }
}

// What can be found, and then what can not be found any more but is still held.
entry* engine::next_to_invalidate(peer_id peer, const range& gone) const noexcept {
  const auto fresh = [](const entry& one) { return !one.stale.load(std::memory_order_relaxed); };
  if (entry* found = lookup_.find_overlap(peer, gone, fresh)) return found;
  return hidden_.find_overlap(peer, gone, [&](const entry& one) {
    return fresh(one) && one.pins > 0 && one.now() != entry_state::quarantined;
  });
}

void engine::unpersist(peer_id peer, const range& where) noexcept {
  core::scoped_lock guard(mutex_);
  const auto kept = [](const entry& one) { return one.persistent; };
  while (entry* found = lookup_.find_overlap(peer, where, kept)) {
    found->persistent = false;
    if (found->now() != entry_state::live || found->pins > 0) continue;
    ++found->pins;
    static_cast<void>(unpin(*found));  // as if released now; a close that fails is kept and told to the sink
  }
}

result<void> engine::drop_peer(peer_id peer) noexcept {
  invalidate(peer, {0, UINTPTR_MAX});
  if (options_.closes == close_policy::deferred) return {};
  core::scoped_lock guard(mutex_);
  return close_queued(SIZE_MAX);
}

}  // namespace pinfold::detail

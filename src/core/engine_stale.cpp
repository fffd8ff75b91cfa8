// SPDX-License-Identifier: BSD-3-Clause
// Calls that say which memory is gone, or need not be kept.
#include "core/engine.hpp"

namespace pinfold::detail {

void engine::invalidate(peer_id peer, const range& gone) noexcept {
  range left = gone;
  while (!left.empty()) {  // in batches, so that the mutex is held briefly and nothing is allocated
    core::leased_notices still_held;
    {
      os::scoped_lock guard(mutex_);
      core::invalidated_entries invalidated;
      invalidated.grow(table_.invalidate_next(peer, left, invalidated.rest()));
      settle();
      still_held.note(invalidated.all());
    }
    tell(still_held);
  }
}

// Retires an entry whose token differs: the exporter freed that memory and gave its address to other memory (R4).
void engine::replace(entry& stale) noexcept {
  counters_.add(counter::invalid);
  const event replaced = about(stale, event_kind::replaced, severity::info);
  table_.invalidate(stale);
  settle();
  mutex_.unlock();
  tell(replaced);
  mutex_.lock();
}

void engine::unpersist(peer_id peer, const range& where) noexcept {
  os::scoped_lock guard(mutex_);
  while (entry* found = table_.unpersist_next(peer, where)) {
    if (found->now() != entry_state::live) continue;
    waiting_.notify(this);                                 // it can be evicted now
    static_cast<void>(unpinned(*found, defers_closes()));  // if it fails, the entry is quarantined, and the sink told
  }
}

result<void> engine::drop_peer(peer_id peer) noexcept {
  invalidate(peer, {0, UINTPTR_MAX});
  if (options_.closes == close_policy::deferred) return {};
  os::scoped_lock guard(mutex_);
  return close_queued(SIZE_MAX);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Memory that is gone: hiding its entries, and queueing their closes.
#include "core/engine.hpp"
#include "core/sync_point.hpp"

#include <algorithm>

namespace pinfold::detail {

void engine::invalidate_entry(entry& gone) noexcept {
  history_.remember(gone.peer(), gone.covered().begin, miss_reason::invalidated);
  gone.hot()->set(record::stale);
  if (gone.findable()) retire(gone);
}

// Hides an entry from all requests. `sort_retired` has to follow before the mutex is released.
void engine::retire(entry& old) noexcept {
  stop_hits(old);
  if (old.hot()->is(record::listed)) hits_.erase(old.hot());
  if (old.now() == entry_state::evicting) evicting_.remove(&old);
  if (reusable(old)) reusable_.remove(&old);
  if (old.now() == entry_state::opening) {
    old.doomed = true;
    return;
  }
  old.become(entry_state::draining);
  retired_.push_back(&old);
}

// Passes a barrier, then queues the closes of retired entries without a pin; the last release closes each of the
// others.
void engine::sort_retired() noexcept {
  if (retired_.empty()) return;
  core::sync_point();
  order_hits();
  core::sync_point();
  while (entry* old = retired_.front()) {
    retired_.remove(old);
    if (old->pins() > 0) {
      if (old->hot()->is(record::stale)) counters_.add(counter::invalidated_while_leased);
      draining_pinned_.push_back(old);
    } else {
      queue_close(*old);
    }
  }
}

void engine::invalidate(peer_id peer, const range& gone) noexcept {
  range left = gone;
  while (!left.empty()) {  // in batches, so that the mutex is held briefly and nothing is allocated
    core::leased_notices still_held;
    {
      os::scoped_lock guard(mutex_);
      core::invalidated_entries invalidated;
      invalidated.grow(invalidate_next(peer, left, invalidated.rest()));
      sort_retired();
      still_held.note(invalidated.all());
    }
    tell(still_held);
  }
}

// Marks findable entries, and hidden entries that are still pinned. Leaves in `left` the part of the range from the
// first unmarked entry on, or nothing; entries that reach into that part from before are marked already.
std::size_t engine::invalidate_next(peer_id peer, range& left, std::span<entry*> invalidated,
                                    std::uint32_t before) noexcept {
  std::size_t count = 0;
  const entry* next = index_.find_overlap(peer, left, [&](entry& one) {
    mutex_is_held();
    if (one.hot()->is(record::stale) || one.era() >= before) return false;
    const bool findable = one.findable();
    if (!findable && (one.pins() <= 0 || one.now() == entry_state::quarantined)) return false;
    if (count == invalidated.size()) return true;
    invalidate_entry(one);
    if (!findable) counters_.add(counter::invalidated_while_leased);
    invalidated[count++] = &one;
    return false;
  });
  left.begin = next == nullptr ? left.end : std::max(left.begin, next->covered().begin);
  return count;
}

void engine::unpersist(peer_id peer, const range& where) noexcept {
  os::scoped_lock guard(mutex_);
  const auto kept = [](const entry& one) { return one.persistent && one.findable(); };
  while (entry* found = index_.find_overlap(peer, where, kept)) {
    found->persistent = false;
    if (found->now() != entry_state::live) continue;
    if (reusable(*found)) reusable_.push_back(found);
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

// SPDX-License-Identifier: BSD-3-Clause
// Calls that withdraw memory: it is gone, or need not be kept.
#include "core/engine_events.hpp"

#include <memory>
#include <utility>

namespace pinfold::detail {

// An entry that is still opening has no registration yet: `finish` tells the driver later.
void engine_events::tell_driver(const shard& in, const invalidated_entries& gone) const noexcept {
  if (!driver_.wants_invalidated()) return;
  for (const entry* one : gone.all()) {
    const auto now = one->now();
    if (now != entry_state::opening && now != entry_state::closing) driver_.invalidated(in.table.object_of(*one));
  }
}

void engine_events::invalidate(peer_id peer, const range& gone, const void* token) noexcept {
  core::quiesced::withdrawing it(quiesced_, core::withdrawal::of::gone, peer, gone);
  for (shard& in : shards_.of(shards_.map().overlapping(gone))) {
    range left = gone;
    while (!left.empty()) {  // in batches, so that the mutex is held briefly and nothing is allocated
      core::leased_notices still_held;
      {
        os::scoped_lock guard(in.mutex);
        it.before_visit();
        core::invalidated_entries invalidated;
        invalidated.grow(in.table.invalidate_next(peer, left, invalidated.rest(), UINT32_MAX, token));
        tell_driver(in, invalidated);
        settle(in);
        still_held.note(invalidated.all());
        if (reporter_.is_observed()) reporter_.note_invalidated(invalidated);
      }
      reporter_.tell(still_held);
    }
  }
}

// Retires an entry whose token differs: the exporter freed that memory and gave its address to other memory (R4).
void engine_events::replace(shard& in, entry& stale) noexcept {
  in.counts.add(counter::invalid);
  const event replaced = core::reporter::about(stale, event_kind::replaced, severity::info);
  in.table.invalidate(stale);
  settle(in);
  const os::scoped_unlock free(in.mutex);
  reporter_.tell(replaced);
}

void engine_events::replace_and_close(shard& in, entry& stale) noexcept {
  replace(in, stale);
  if (options_.closes == close_policy::immediate) static_cast<void>(close_queued(in, SIZE_MAX));
}

void engine_events::unpersist(peer_id peer, const range& where) noexcept {
  core::quiesced::withdrawing it(quiesced_, core::withdrawal::of::unpersisted, peer, where);
  unpersist_open(peer, where, &it);
}

void engine_events::unpersist_open(peer_id peer, const range& where, core::quiesced::withdrawing* call) noexcept {
  for (shard& in : shards_.of(shards_.map().overlapping(where))) {
    os::scoped_lock guard(in.mutex);
    if (call != nullptr) call->before_visit();
    while (entry* found = in.table.unpersist_next(peer, where)) {
      if (found->now() != entry_state::live) continue;
      changes_.notify();                                         // it can be evicted now
      static_cast<void>(unpinned(in, *found, defers_closes()));  // if it fails: quarantined, and the sink told
    }
  }
}

result<void> engine_events::drop(peer_id peer, const range& where, const void* token) noexcept {
  invalidate(peer, where, token);
  result<void> first;
  if (options_.closes == close_policy::deferred) return first;
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    auto closed = close_queued(in, SIZE_MAX);
    if (first && !closed) first = closed;
  }
  return first;
}

}  // namespace pinfold::detail

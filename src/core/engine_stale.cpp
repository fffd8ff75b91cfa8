// SPDX-License-Identifier: BSD-3-Clause
// Calls that say which memory is gone, or need not be kept.
#include "core/engine.hpp"

#include <memory>
#include <utility>

namespace pinfold::detail {

// What is still opening has no registration yet: `finish` tells of it.
void engine::tell_driver(const shard& in, const invalidated_entries& gone) const noexcept {
  if (driver_.invalidated == nullptr) return;
  for (const entry* one : gone.all()) {
    const auto now = one->now();
    if (now != entry_state::opening && now != entry_state::closing)
      driver_.invalidated(driver_.self, in.table.object_of(*one));
  }
}

void engine::invalidate(peer_id peer, const range& gone, const void* token) noexcept {
  saying it(*this, core::said_now::of::gone, peer, gone);
  core::for_each_shard(shards_.map().overlapping(gone), [&](std::size_t number) {
    shard& in = shards_[number];
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
        if (is_observed()) note_invalidated(invalidated);
      }
      tell(still_held);
    }
  });
}

// Retires an entry whose token differs: the exporter freed that memory and gave its address to other memory (R4).
void engine::replace(shard& in, entry& stale) noexcept {
  in.counts.add(counter::invalid);
  const event replaced = about(stale, event_kind::replaced, severity::info);
  in.table.invalidate(stale);
  settle(in);
  in.mutex.unlock();
  tell(replaced);
  in.mutex.lock();
}

void engine::replace_and_close(shard& in, entry& stale) noexcept {
  replace(in, stale);
  if (options_.closes == close_policy::immediate) static_cast<void>(close_queued(in, SIZE_MAX));
}

void engine::unpersist(peer_id peer, const range& where) noexcept {
  saying it(*this, core::said_now::of::unpersisted, peer, where);
  unpersist_open(peer, where, &it);
}

void engine::unpersist_open(peer_id peer, const range& where, saying* told) noexcept {
  core::for_each_shard(shards_.map().overlapping(where), [&](std::size_t number) {
    shard& in = shards_[number];
    os::scoped_lock guard(in.mutex);
    if (told != nullptr) told->before_visit();
    while (entry* found = in.table.unpersist_next(peer, where)) {
      if (found->now() != entry_state::live) continue;
      changes_.notify();                                         // it can be evicted now
      static_cast<void>(unpinned(in, *found, defers_closes()));  // if it fails: quarantined, and the sink told
    }
  });
}

result<void> engine::drop(peer_id peer, const range& where, const void* token) noexcept {
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

// The importer's thread keeps only the engine's memory, and no back end: that would keep itself.
void engine::watch_exporters() {
  if (driver_.tell_ends == nullptr) return;
  auto use = background_use::begin(this);
  if (!use) return;
  exporters_ = std::make_shared<background_use>(*std::move(use));
  driver_.tell_ends(driver_.self, [from = std::weak_ptr(exporters_)](peer_id peer, range where, const void* token) {
    const auto kept = from.lock();
    if (!kept) return;
    const background_use::call now(*kept);
    if (now.on() != nullptr) static_cast<void>(now.on()->drop(peer, where, token));  // a failure is told, and retried
  });
}

}  // namespace pinfold::detail

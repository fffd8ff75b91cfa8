// SPDX-License-Identifier: BSD-3-Clause
// Which entries are closed for room: in the budget, or in the driver (R7, R14-R17).
#include "core/engine_room.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>

namespace pinfold::detail {

namespace {

constexpr unsigned asks_beyond = 16;  // registrations beyond the budget's are not counted
constexpr unsigned asks_in_any_case = 2;

constexpr unsigned clamped(std::size_t count) noexcept {
  return static_cast<unsigned>(std::min<std::size_t>(count, UINT_MAX / 2));
}

}  // namespace

// Marks a few victims at once, for one barrier. `rounds`: how often the hand may pass an entry.
void engine_room::mark_victims(shard& in, unsigned rounds) noexcept {
  in.table.begin_evict_victims(shards_.size() == 1 ? 16 : 4, rounds);
  settle(in);
}

// Marks entries that are hit so often that the hand finds none of them idle.
void engine_room::mark_all_at_once(shard& in) noexcept {
  PINFOLD_ASSERT(in.table.settled(), "hits of every entry are stopped at one time");
  in.table.begin_evict_all();
  settle(in);
  in.table.revive_all_but_a_batch();
}

// Marks the entries of all shards, with one barrier. Under all mutexes no release of an entry that was set aside ends:
// if all entries were, each has a lease at this moment, and a request may be refused (R58). Closes an entry before any
// thread can pin it again.
engine_room::looked engine_room::close_one_of_all_at_once() noexcept
    PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  shard* with_victim = nullptr;
  bool ordered = true;
  lock_all();
  for (shard& in : shards_) {
    PINFOLD_ASSERT(in.table.settled(), "nothing is unsettled while a mutex is free");
    in.table.begin_evict_all();
    ordered = ordered && in.table.settled();
  }
  if (!ordered) ordered = order_hits(shards_[0]);
  for (shard& in : shards_) {
    if (!ordered) static_cast<void>(order_hits(in));
    settle_ordered(in);
    in.table.revive_all_but_a_batch();
    if (with_victim == nullptr && in.table.any_closable()) with_victim = &in;
  }
  const bool closing = closes_in_flight() > 0;
  for (shard& in : shards_)
    if (&in != with_victim) in.mutex.unlock();
  if (with_victim == nullptr) return closing ? looked::closing : looked::nothing;
  static_cast<void>(close_marked(*with_victim));
  with_victim->mutex.unlock();
  return looked::closed_one;
}

// Queues the closes of entries that only failing hits had pinned, or whose release is not finished yet: the releasing
// thread is between two steps.
void engine_room::queue_released(shard& in) noexcept {
  if (in.table.queue_released() > 0) closes_are_due();
  in.table.retire_released();
  settle(in);
}

// Queues the closes of imports that were not used for `idle_timeout`: an importer does not learn that the exporter
// freed a buffer, and the exporter's memory stays allocated while it is mapped here. Entries that eviction marked
// before are queued, too: they were not used since the hand passed them.
void engine_room::queue_idle(shard& in) noexcept {
  if (!in.sweep.due()) return;
  in.table.begin_evict_idle();
  settle(in);
  in.table.retire_idle();
  settle(in);
}

// Closes an entry that is marked, or whose close is due.
bool engine_room::close_marked(shard& in) noexcept {
  if (entry* due = in.table.first_due()) {
    static_cast<void>(close(in, *due));  // on failure the entry is quarantined, and the sink told
    return true;
  }
  entry* victim = in.table.first_evicting();
  if (victim == nullptr) return false;
  in.table.count_eviction(*victim);
  if (reporter_.is_observed()) reporter_.note_eviction(*victim);
  static_cast<void>(close(in, *victim, event_kind::evicted));
  return true;
}

bool engine_room::close_one_of(shard& in) noexcept {
  constexpr unsigned twice = 2;  // so that it finds one if all were visited
  if (!in.table.any_closable()) mark_victims(in, twice);
  return close_marked(in);
}

engine_room::looked engine_room::close_one_for_room(shard& in) noexcept {
  if (close_marked(in)) return looked::closed_one;
  if (shards_.size() > 1) {
    const os::scoped_unlock free(in.mutex);
    return close_one_anywhere();
  }
  if (close_one_of(in)) return looked::closed_one;
  if (!in.table.all_set_aside()) mark_all_at_once(in);
  if (close_marked(in)) return looked::closed_one;
  return closes_in_flight() > 0 ? looked::closing : looked::nothing;
}

engine_room::looked engine_room::close_one_anywhere() noexcept {
  constexpr unsigned once = 1;
  for (std::size_t tries = 0; tries < shards_.size(); ++tries) {
    shard& in = shards_.next_for_eviction();
    os::scoped_lock guard(in.mutex);
    if (!in.table.any_closable()) mark_victims(in, once);
    if (close_marked(in)) return looked::closed_one;
  }
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    if (close_one_of(in)) return looked::closed_one;
  }
  return close_one_of_all_at_once();
}

bool engine_room::any_quarantined() const noexcept {
  std::uint64_t all = 0;
  for (const shard& in : shards_) all += in.counts.count(counter::quarantined);
  return all > 0;
}

void engine_room::retry_all_quarantined(shard& in) noexcept {
  static_cast<void>(retry_quarantined(in));
  if (shards_.size() == 1) return;
  const os::scoped_unlock free(in.mutex);
  for (shard& other : shards_.others(shards_.map().all(), in)) {
    os::scoped_lock guard(other.mutex);
    static_cast<void>(retry_quarantined(other));
  }
}

// Entries whose close fails again stay quarantined.
bool engine_room::retry_quarantined_once(shard& in, bool& retried) noexcept {
  if (retried || !any_quarantined()) return false;
  retried = true;
  retry_all_quarantined(in);
  return true;
}

// Makes room when the driver is out of resources, one victim at a time. Success means that the caller asks the driver
// again, but not more often than there were registrations at its first refusal: they are closed by then, and other
// threads may open more all the time. Nor does it ask for more than a few seconds: a peer may choose how long its
// handle's refusal takes.
result<void> engine_room::free_resources(shard& in, const error& refused, closes_known& before,
                                         const deadlines& until) noexcept {
  if (before.most_asked == 0) before.most_asked = before.asked + asks_beyond + clamped(budget_.count_now());
  const bool late = std::chrono::steady_clock::now() > until.making_room();
  if ((late && before.asked >= asks_in_any_case) || before.asked >= before.most_asked) return tl::unexpected(refused);
  if (driver_.closed_since(before)) return {};
  release_watch watch(changes_);
  for (auto found = looked::nothing; found == looked::nothing;) {
    found = close_one_for_room(in);
    if (found == looked::closed_one) return {};
    if (found == looked::nothing && !wait_for_transient(in, watch, until)) break;
  }
  while (closes_in_flight() > 0 && !driver_.closed_since(before)) {
    if (!wait_for_change(in, watch.changes(), until.others()))
      return fail(errc::timed_out, "out of resources, and another thread's close did not finish in time");
  }
  if (driver_.closed_since(before)) return {};
  retry_all_quarantined(in);
  if (driver_.closed_since(before)) return {};
  return tl::unexpected(refused);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Barriers, waiting, and waking the threads that wait.
#include "core/engine_waiting.hpp"
#include "core/sync_point.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace pinfold::detail {

bool engine_waiting::wait_for(shard& in, const void* what, core::deadline until) noexcept {
  const auto start = std::chrono::steady_clock::now();
  if (start >= until) return false;
  in.counts.add(counter::requests_waiting);
  const bool in_time = in.waiting.wait(what, in.mutex, until);
  in.counts.subtract(counter::requests_waiting);
  reporter_.note_wait(in.counts, std::chrono::steady_clock::now() - start);
  return in_time;
}

// Waits for a close, a release, or room, in any shard. The first call only announces the waiter and returns true:
// changes before the announcement did not notify, so the caller must check again first.
bool engine_waiting::wait_for_change(shard& in, change_waiter& self, core::deadline until) noexcept {
  if (!self.begun()) {
    self.begin();
    if (!order_hits(in)) self.distrust();
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  if (start >= until) return false;
  in.counts.add(counter::requests_waiting);
  const bool in_time = os::unlocked(in.mutex, [&] { return self.wait(until); });
  in.counts.subtract(counter::requests_waiting);
  reporter_.note_wait(in.counts, std::chrono::steady_clock::now() - start);
  return in_time;
}

bool engine_waiting::wait_for_change(change_waiter& self, core::deadline until) noexcept {
  shard& any = shards_[0];
  os::scoped_lock guard(any.mutex);
  return wait_for_change(any, self, until);
}

// Waits likewise, while every release in the process is finished.
bool engine_waiting::wait_for_release(shard& in, release_watch& watch, core::deadline until) noexcept {
  if (watch.begun()) return wait_for_change(in, watch.changes(), until);
  watch.begin();
  if (watch.changes().begun()) {
    if (!order_hits(in)) watch.changes().distrust();
    return true;
  }
  return wait_for_change(in, watch.changes(), until);
}

// Waits until a release was finished, which may have been that of a transient pin. Returns false when no pin can be
// transient, or when no release came in time.
bool engine_waiting::wait_for_transient(shard& in, release_watch& watch, const deadlines& until) noexcept {
  if (!pace_.any_transient()) return false;
  if (wait_for_release(in, watch, pace_.end_of_transient(until))) return true;
  pace_.note_vain_wait();
  return false;
}

// Passes a barrier: after it, the sums of entries whose hits were stopped before are exact. If the kernel refuses the
// barrier, as in a process that forbade itself membarrier, hits without the mutex end for good in this cache: no entry
// becomes hittable, and each shard stops the hits of its own entries when it first needs a barrier. Then the thread
// waits once, long enough for a processor's stores to leave its store buffer: a hit that had begun has its pin in
// memory by then, or fails. Returns false when the kernel refused.
bool engine_waiting::order_hits(shard& in) noexcept {
  if (os::order_everywhere()) return true;
  hits_need_the_mutex_.store(true, std::memory_order_seq_cst);
  if (std::exchange(in.hits_stopped, true)) return false;
  constexpr std::chrono::milliseconds store_buffers_empty{10};
  in.table.stop_hits_for_good();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const no_cancellation guard;  // a plain miss has none
  std::this_thread::sleep_for(store_buffers_empty);
  return false;
}

// Passes one barrier for all entries whose hits were stopped, or that were set aside, and sorts them by their pins.
void engine_waiting::settle(shard& in) noexcept {
  if (!in.table.settled()) {
    core::sync_point();
    order_hits(in);
    core::sync_point();
  }
  settle_ordered(in);
}

void engine_waiting::settle_ordered(shard& in) noexcept {
  if (in.table.settle() > 0) closes_are_due();
  if (in.table.take_doubt()) pace_.note_transient();
}

void engine_waiting::note_pinned(shard& in, const entry& kept_open) noexcept {
  in.table.note_pinned(kept_open);
  if (in.table.take_doubt()) pace_.note_transient();
}

// A close that is due makes room.
void engine_waiting::closes_are_due() noexcept {
  changes_.notify();
  wake_reaper();
}

void engine_waiting::wake_reaper() noexcept {
  if (options_.reaper) reaper_.wake();
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Barriers, waiting, and waking the threads that wait.
#include "core/engine.hpp"
#include "core/sync_point.hpp"

#include <algorithm>
#include <thread>

namespace pinfold::detail {

bool engine::wait_for(const void* what, core::deadline until) noexcept {
  const auto start = std::chrono::steady_clock::now();
  if (start >= until) return false;
  const bool in_time = waiting_.wait(what, mutex_, until);
  const auto spent = std::chrono::steady_clock::now() - start;
  counters_.add(counter::waited_ns, static_cast<std::uint64_t>(std::chrono::nanoseconds(spent).count()));
  return in_time;
}

// Waits for a release. The first call only announces the waiter and returns true: releases before the announcement did
// not notify, so the caller must check again first.
bool engine::wait_for_release(release_watch& watch, core::deadline until) noexcept {
  if (watch.begun()) return wait_for(this, until);
  watch.begin();
  order_hits();
  return true;
}

// Returns until when to wait for transient pins. After a wait in vain the pins are most likely leases, so that the next
// waits are short for a while: a hundredth of the time at most is lost to long waits.
core::deadline engine::end_of_transient(const deadlines& until) const noexcept {
  const auto now = std::chrono::steady_clock::now();
  const bool lately = last_vain_wait_ != core::deadline{} && now - last_vain_wait_ < 100 * core::longest_transient_pin;
  return lately ? std::min(until.transient(), now + core::longest_transient_pin / 50) : until.transient();
}

// Waits until a release was finished, which may have been that of a transient pin. Returns false when no pin can be
// transient, or when no release came in time.
bool engine::wait_for_transient(release_watch& watch, const deadlines& until) noexcept {
  if (!table_.any_transient()) return false;
  if (wait_for_release(watch, end_of_transient(until))) return true;
  last_vain_wait_ = std::chrono::steady_clock::now();
  return false;
}

// Passes a barrier: after it, the sums of entries whose hits were stopped before are exact. If the kernel refuses the
// barrier, as in a process that forbade itself membarrier, hits without the mutex end for good in this cache. Then it
// waits once, long enough for a processor's stores to leave its store buffer: a hit that had begun has its pin in
// memory by then, or fails.
void engine::order_hits() noexcept {
  if (os::order_everywhere() || hits_need_the_mutex_.exchange(true, std::memory_order_seq_cst)) return;
  constexpr std::chrono::milliseconds store_buffers_empty{10};
  table_.stop_hits_for_good();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::this_thread::sleep_for(store_buffers_empty);
}

// Passes one barrier for all entries that were taken out of the reach of hits, and sorts them by their pins.
void engine::settle() noexcept {
  if (table_.settled()) return;
  core::sync_point();
  order_hits();
  core::sync_point();
  if (table_.settle() > 0) closes_are_due();
}

// A close that is due makes room.
void engine::closes_are_due() noexcept {
  waiting_.notify(this);
  wake_reaper();
}

void engine::wake_reaper() noexcept {
  if (options_.reaper) reaper_wake_.notify_one();
}

}  // namespace pinfold::detail

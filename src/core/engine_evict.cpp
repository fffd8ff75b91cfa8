// SPDX-License-Identifier: BSD-3-Clause
// Taking entries out of the reach of hits, to close those without a pin; and telling leases from transient pins. A
// transient pin is that of a failed hit: its thread gives it back before it does anything else.
#include "core/engine.hpp"
#include "core/sync_point.hpp"

#include <algorithm>
#include <thread>

namespace pinfold::detail {

// Takes a live entry out of the reach of hits. Until the next barrier, hits may still pin it.
void engine::begin_evict(entry& live, index::entry_list& chosen) noexcept {
  core::sync_point();  // the caller may have seen no pin
  stop_hits(live);
  core::sync_point();
  if (reusable(live)) reusable_.remove(&live);
  live.become(entry_state::evicting);
  chosen.push_back(&live);
}

void engine::revive(entry& evicting) noexcept {
  evicting_.remove(&evicting);
  evicting.become(entry_state::live);
  if (reusable(evicting)) reusable_.push_back(&evicting);
  allow_hits(evicting, *evicting.hot());
}

// Passes a barrier, then moves the entries of `chosen` to `evicting_`, and revives those that were pinned before it.
void engine::keep_unpinned(index::entry_list& chosen) noexcept {
  if (chosen.empty()) return;
  order_hits();
  core::sync_point();
  while (entry* one = chosen.front()) {
    chosen.remove(one);
    evicting_.push_back(one);
    if (one->pins() > 0) revive(*one);
  }
}

bool engine::begin_evict_if_idle(entry& live) noexcept {
  index::entry_list chosen;
  begin_evict(live, chosen);
  keep_unpinned(chosen);
  return live.now() == entry_state::evicting;
}

// Moves eviction's hand on: an entry that was hit since the hand passed, or is pinned, gets another round. Marks a few
// victims at once, for the barrier costs more than all the rest; a request for one that was not needed revives it under
// the mutex.
void engine::begin_evict_victims() noexcept {
  constexpr std::size_t most = 64;
  const auto wanted = std::min(most, 1 + reusable_.size() / 16);
  index::entry_list chosen;
  for (auto left = 2 * reusable_.size(); left > 0 && chosen.size() < wanted && !reusable_.empty(); --left) {
    entry& one = *reusable_.front();
    if (!one.visited_since_hand() && one.pins() <= 0) {
      begin_evict(one, chosen);
      continue;
    }
    reusable_.remove(&one);
    reusable_.push_back(&one);
  }
  keep_unpinned(chosen);
  if (!evicting_.empty() || ledger::others() == 0) return;
  begin_evict_all_unpinned();
  while (evicting_.size() > most) revive(*evicting_.front());
}

// While hits go on, the sum of an entry's pins proves nothing. With all hits stopped at the same time it does: an entry
// that is still pinned was pinned at that moment, so that a request may be refused when all entries are pinned (R58).
void engine::begin_evict_all_unpinned() noexcept {
  index::entry_list chosen;
  while (entry* one = reusable_.front()) begin_evict(*one, chosen);
  keep_unpinned(chosen);
}

void engine::begin_evict_idle() noexcept {
  index::entry_list chosen;
  for (auto left = reusable_.size(); left > 0; --left) {
    entry& one = *reusable_.front();
    if (one.pins() <= 0) {
      begin_evict(one, chosen);
    } else {
      reusable_.remove(&one);
      reusable_.push_back(&one);
    }
  }
  keep_unpinned(chosen);
}

// Queues the closes of entries that only failing hits had pinned, or that were released and are not finished yet: the
// releasing thread is between two steps.
void engine::queue_released() noexcept {
  queue_draining();
  index_.for_each([this](entry& one) {
    mutex_is_held();
    if (one.now() == entry_state::live && !kept(one) && one.pins() <= 0) retire(one);
  });
  sort_retired();
}

// A thread has one transient pin at most, and the calling thread has none: all pins that it holds are leases.
bool engine::may_be_transient(const entry& pinned) noexcept {
  const auto pins = pinned.pins();
  return pins > 0 && !ledger::held_here(pinned.hot()) && static_cast<std::size_t>(pins) <= ledger::others();
}

// Whether any entry could be closed soon without the end of a lease.
bool engine::any_transient() noexcept {
  bool found = false;
  index_.for_each([&](const entry& one) {
    mutex_is_held();
    const bool closable = (one.now() == entry_state::live && !one.persistent) || one.now() == entry_state::draining;
    found = found || (closable && may_be_transient(one));
  });
  return found;
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
  if (!any_transient()) return false;
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
  index_.for_each([](entry& one) { stop_hits(one); });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::this_thread::sleep_for(store_buffers_empty);
}

// Stops all hits: until `resume_hits`, every request takes the mutex, and sums are exact.
void engine::stop_all_hits() noexcept {
  ++hits_stopped_;
  index_.for_each([](entry& one) {
    core::sync_point();
    stop_hits(one);
  });
  order_hits();
}

void engine::resume_hits() noexcept {
  if (--hits_stopped_ > 0) return;
  index_.for_each([this](entry& one) {
    mutex_is_held();
    if (one.now() == entry_state::live) allow_hits(one, *one.hot());
  });
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/monitor.hpp"

#include "invalidation/event_log.hpp"
#include "os/check.hpp"

namespace pinfold::invalidation {

// A thread that keeps a registration first indexes the entry, and then calls `ensure_works`. If that returns true
// before `failed_` is set here, the entry is in the index when the failure is posted, and is invalidated with the rest.
// If it returns true later, the thread calls `watch` of the restarted monitor.
bool monitor::recover() noexcept {
  if (recovering_.exchange(true, std::memory_order_acquire)) return false;
  if (!failed_.load(std::memory_order_relaxed)) {
    if (works()) {  // another thread has restarted it
      recovering_.store(false, std::memory_order_release);
      return true;
    }
    PINFOLD_ASSERT(why_not() != nullptr, "a monitor that fails has a reason");
    last_failure_.store(why_not(), std::memory_order_release);
    failed_.store(true, std::memory_order_release);
    failures_.fetch_add(1, std::memory_order_release);
    event_log::here().post_everything();
  }
  bool well = works();
  if (!well && std::chrono::steady_clock::now() >= next_attempt_) {
    well = restart();
    if (!well) next_attempt_ = std::chrono::steady_clock::now() + between_attempts;
  }
  if (well) {
    recoveries_.fetch_add(1, std::memory_order_release);
    PINFOLD_ASSERT(recoveries_.load(std::memory_order_relaxed) <= failures_.load(std::memory_order_relaxed),
                   "a monitor recovers once from each failure");
    failed_.store(false, std::memory_order_release);
  }
  recovering_.store(false, std::memory_order_release);
  return well;
}

}  // namespace pinfold::invalidation

// SPDX-License-Identifier: BSD-3-Clause
// The end of a cache (R42). The engine outlives the cache as long as a lease is out, or another thread is in the
// driver.
#include "core/engine.hpp"
#include "core/sync_point.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace pinfold::detail {

// Stops the reaper. Returns false when its thread is still in the driver: then the thread ends by itself.
bool engine::stop_reaper(core::deadline until) noexcept {
  if (!reaper_.joinable()) return true;
  bool ended = false;
  {
    os::scoped_lock guard(mutex_);
    reaper_stop_ = true;
    reaper_wake_.notify_one();
    while (reaper_runs_ && wait_for(this, until)) {
    }
    ended = !reaper_runs_;
  }
  ended ? reaper_.join() : reaper_.detach();
  return ended;
}

// Waits for leases, then for closes by other threads: their releases may be in the driver.
void engine::wait_for_others(core::deadline until) noexcept {
  core::sync_point();
  while (in_use() > 0 && wait_for(this, until)) {
  }
  while (table_.closes_in_flight() > 0 && wait_for(this, until)) {
  }
}

// Closes everything. The sink is told of failures: there is no later call that could try again.
void engine::close_everything() noexcept {
  PINFOLD_ASSERT(table_.ended() && table_.settled(), "no request opens or finds anything any more");
  static_cast<void>(retry_quarantined());
  table_.prepare_final_close();
  core::sync_point();
  static_cast<void>(close_queued(SIZE_MAX));
  static_cast<void>(close_evicting());
  static_cast<void>(retry_quarantined());
}

void engine::say_goodbye(std::uint64_t leases, std::size_t closes) noexcept {
  event left{event_kind::leases_outlive_cache, severity::failure};
  left.leases = leases;
  if (leases > 0) tell(left);
  if (closes > 0) tell({event_kind::closes_outlive_cache, severity::failure});
  if (!options_.statistics_at_exit) return;
  try {
    std::string line = describe(read_statistics());
    if (driver_.token_bytes == 0) line += "; monitors: " + monitors();  // of local memory
    if (!options_.sink) std::fprintf(stderr, "%s: %s\n", options_.name.c_str(), line.c_str());
    event what{event_kind::statistics, severity::info};
    what.text = line.c_str();
    tell(what);
  } catch (...) {  // no memory for a line of text is no reason to end the program
    counters_.add(core::shared_counter::sink_failures);
  }
}

void engine::shut_down(engine* ending) noexcept {
  const auto start = std::chrono::steady_clock::now();
  const auto until =
      start + std::max<std::chrono::microseconds>(ending->options_.drain_timeout, core::longest_transient_pin);
  const bool reaper_ended = ending->stop_reaper(until);
  ending->unpersist({}, {0, UINTPTR_MAX});  // only local memory can be persistent
  std::uint64_t leases = 0;
  std::size_t closes = 0;
  {
    os::scoped_lock guard(ending->mutex_);
    ending->table_.end();
    ending->order_hits();
    ending->wait_for_others(until);
    leases = ending->in_use();
    closes = ending->table_.closes_in_flight();
    ending->close_everything();
  }
  ending->say_goodbye(leases, closes);
  std::shared_ptr<void> backend;  // ends after the lock does
  engine* last = nullptr;
  {
    os::scoped_lock guard(ending->mutex_);
    ending->orphaned_ = true;
    ending->silent_.store(true, std::memory_order_relaxed);
    if (ending->table_.closes_in_flight() == 0 && reaper_ended) backend = std::move(ending->backend_);
    last = ending->leave_if_last();
  }
  destroy(last);
}

}  // namespace pinfold::detail

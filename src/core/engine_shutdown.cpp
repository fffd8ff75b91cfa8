// SPDX-License-Identifier: BSD-3-Clause
// The end of a cache (R42). The engine outlives the cache as long as a lease is out, or another thread is in the
// driver.
#include "core/engine.hpp"
#include "core/sync_point.hpp"
#include "os/size_limit.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

namespace pinfold::detail {

// Waits for leases, then for closes by other threads: their releases may be in the driver.
void engine::wait_for_others(core::deadline until) noexcept {
  core::sync_point();
  change_waiter self(changes_);
  while (in_use() > 0 && wait_for_change(self, until)) {
  }
  while (closes_in_flight() > 0 && wait_for_change(self, until)) {
  }
}

// Closes all entries. Tells the sink of failures: there is no later call that could try again.
void engine::close_everything(shard& in) noexcept {
  PINFOLD_ASSERT(in.table.ended() && in.table.settled(), "no request opens or finds anything any more");
  static_cast<void>(retry_quarantined(in));
  in.table.prepare_final_close();
  core::sync_point();
  static_cast<void>(close_queued(in, SIZE_MAX));
  static_cast<void>(close_evicting(in));
  static_cast<void>(retry_quarantined(in));
}

// Retries the closes that the driver has refused, until the deadline: a device may be busy.
void engine::close_refused(core::deadline until) noexcept {
  for (std::chrono::milliseconds pause{1}; any_quarantined(); pause *= 2) {  // the sink is told each refusal
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return;
    std::this_thread::sleep_until(std::min(now + pause, until));
    for (shard& in : shards_) {
      os::scoped_lock guard(in.mutex);
      static_cast<void>(retry_quarantined(in, until));
    }
  }
}

void engine::say_goodbye(std::uint64_t leases, std::size_t closes) noexcept {
  event left{event_kind::leases_outlive_cache, severity::failure};
  left.leases = leases;
  if (leases > 0) reporter_.tell(left);
  if (closes > 0) reporter_.tell({event_kind::closes_outlive_cache, severity::failure});
  if (!options_.statistics_at_exit) return;
  reporter_.tell_text({event_kind::statistics, severity::info}, [this](event&) {
    std::string line = describe(read_statistics());
    if (!driver_.imports()) line += "; monitors: " + monitors();
    if (!reporter_.has_sink())
      os::to_the_program([&] { return std::fprintf(stderr, "%s: %s\n", options_.name.c_str(), line.c_str()); });
    return line;
  });
}

void engine::shut_down(engine* ending) noexcept {
  const auto start = std::chrono::steady_clock::now();
  const auto until =
      start + std::max<std::chrono::microseconds>(ending->options_.drain_timeout, core::longest_transient_pin);
  ending->neighbour_.leave();
  ending->background_.stop();
  ending->exporters_.reset();
  const bool reaper_ended = ending->reaper_.stop(until);
  ending->unpersist_open({}, {0, UINTPTR_MAX});  // only local memory can be persistent
  ending->end_requests();
  ending->wait_for_others(until);
  const bool background_ended = ending->background_.wait_until(until);
  const auto leases = ending->in_use();
  const auto closes = ending->closes_in_flight();
  for (shard& in : ending->shards_) {
    os::scoped_lock guard(in.mutex);
    in.drained = true;
    ending->close_everything(in);
  }
  ending->close_refused(until);
  ending->say_goodbye(leases, closes);
  ending->reporter_.stop_page();
  ending->leave_to_leases(reaper_ended && background_ended);
}

// From here on no request opens or finds anything.
void engine::end_requests() noexcept {
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    in.table.end();
    order_hits(in);
  }
  changes_.notify();  // requests that wait for room need not go on
}

// From here on the last thread that needs the engine frees it.
void engine::leave_to_leases(bool threads_ended) noexcept {
  reporter_.silence();
  listed_.say_ended();
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    in.orphaned = true;
  }
  // Destroyed after the engine, or with it if a thread is in the driver.
  const std::shared_ptr<void> backend =
      closes_in_flight() == 0 && threads_ended ? driver_.take_backend() : std::shared_ptr<void>();
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    [[maybe_unused]] const engine* last = leave_if_last(in);
    PINFOLD_ASSERT(in.drained && in.orphaned, "a shard closes what is open before the engine leaves it");
    PINFOLD_ASSERT(last == nullptr, "the cache itself has not left");
  }
  destroy(leave());
}

}  // namespace pinfold::detail

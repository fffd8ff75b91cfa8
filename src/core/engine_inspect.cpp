// SPDX-License-Identifier: BSD-3-Clause
// Statistics and dumps of a running cache.
#include "core/engine.hpp"
#include "core/ticks.hpp"

#include <algorithm>

namespace pinfold::detail {

statistics engine::read_statistics(bool complete) const noexcept {
  const auto sum = [this](counter which) {
    std::uint64_t all = 0;
    for (const shard& in : shards_) all += in.counts.count(which);
    return all;
  };
  statistics now;
  const auto without_mutex = number_.hits() + counters_.sum(core::shared_counter::hits_elsewhere);
  const auto found = number_.finds() + counters_.sum(core::shared_counter::finds_elsewhere);
  now.hits = sum(counter::hits) + without_mutex;
  now.valid = sum(counter::valid) + without_mutex + found;
  now.invalid = sum(counter::invalid);
  now.evicted = sum(counter::evicted);
  now.expired = sum(counter::expired);
  now.found = sum(counter::found) + found;
  now.find_misses = sum(counter::find_misses);
  now.acquires = sum(counter::acquires) + without_mutex;
  now.failed_acquires = sum(counter::failed_acquires);
  now.misses_cold = sum(counter::misses_cold);
  now.misses_invalidated = sum(counter::misses_invalidated);
  now.misses_access = sum(counter::misses_access);
  now.misses_extent = sum(counter::misses_extent);
  now.misses_evicted = sum(counter::misses_evicted);
  now.misses = now.misses_cold + now.misses_invalidated + now.misses_access + now.misses_extent + now.misses_evicted;
  now.opens = sum(counter::opens);
  now.closes = sum(counter::closes);
  now.failed_opens = sum(counter::failed_opens);
  now.failed_closes = sum(counter::failed_closes);
  now.conflicts = sum(counter::conflicts);
  now.bypasses = sum(counter::bypasses);
  now.unmonitored = sum(counter::unmonitored);
  now.monitor_failures = monitors_.failures();
  now.file_backed = sum(counter::file_backed);
  now.invalidated_while_leased = sum(counter::invalidated_while_leased);
  now.audits = counters_.sum(core::shared_counter::audits);
  now.failed_audits = counters_.sum(core::shared_counter::failed_audits);
  now.sink_failures = counters_.sum(core::shared_counter::sink_failures);
  now.waited = std::chrono::nanoseconds(sum(counter::waited_ns));
  now.open = now.opens - now.closes;
  now.bytes_now = budget_.bytes_now();
  now.entries_now = budget_.count_now();
  now.peak_bytes = budget_.peak_bytes();
  now.peak_entries = budget_.peak_count();
  now.leases_now = complete ? leases_out() : 0;
  now.quarantined = sum(counter::quarantined);
  now.bypass_bytes = sum(counter::bypass_bytes);
  now.requests_waiting = sum(counter::requests_waiting);
  now.closes_due = sum(counter::closes_due);
  now.peak_leases = counters_.raise_peak_leases(now.leases_now);
  return now;
}

std::string engine::monitors() const { return here() ? monitors_.text_now() : monitors_.text(); }

bool engine::is_leased(peer_id peer, const range& where) const noexcept {
  for (shard& in : shards_.of(shards_.map().overlapping(where))) {
    os::scoped_lock guard(in.mutex);
    if (in.table.is_pinned_there(peer, where)) return true;
  }
  return false;
}

std::vector<entry_info> engine::dump() const {
  std::vector<entry_info> listed;
  for (shard& in : shards_) {
    std::size_t needed = 0;
    do {  // the list must have room before the lock is taken: nothing is allocated under it
      listed.reserve(listed.size() + needed);
      os::scoped_lock guard(in.mutex);
      needed = in.table.size();
      if (listed.size() + needed <= listed.capacity()) {
        add_all(in, listed);
        break;
      }
    } while (true);
  }
  return listed;
}

void engine::add_all(const shard& in, std::vector<entry_info>& to) const noexcept {
  const auto now = core::ticks();
  in.table.for_each([&](const entry& one) {
    const bool opened = one.now() != entry_state::opening;
    to.push_back({one.peer(), one.covered(), one.bytes, driver_.name(), one.now(), pins_of(one), one.hits(), one.bypass,
                  opened ? core::since(one.opened_at, now) : std::chrono::nanoseconds{0}, one.owner()});
  });
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Room in the budget, and room in the driver: which entries are closed for it (R7, R12, R14-R17).
#include "core/engine.hpp"

namespace pinfold::detail {

result<void> engine::reserve(entry& opening, std::size_t more_bytes, std::size_t more_count,
                             const deadlines& until) noexcept {
  if (opening.bypass) {
    go_without_room(opening, more_bytes);
    return {};
  }
  if (!budget_.can_ever_hold(opening.bytes + more_bytes)) return tl::unexpected(larger_than_budget());
  bool retried = false;
  release_watch watch;
  while (!budget_.take(more_bytes, more_count)) {
    if (close_one_for_room()) continue;
    if (closes_in_flight_ > 0) {
      if (wait_for(this, until.others())) continue;
      return fail(errc::timed_out, "the budget is used up, and another thread's close did not finish in time");
    }
    if (!retried && !quarantined_.empty()) {
      retried = true;
      static_cast<void>(retry_quarantined());  // those that fail again stay listed
      continue;
    }
    const bool may_bypass = options_.full == when_full::bypass && !opening.persistent && !opening.merged;
    const bool refused = options_.full == when_full::fail || (options_.full == when_full::bypass && !may_bypass);
    if (refused && wait_for_transient(watch, until)) continue;
    if (options_.full == when_full::bypass) {
      if (!may_bypass)  // a bypass would end with its last lease, while the caller relies on it
        return fail(errc::over_budget, "the budget is used up, and a persistent registration cannot bypass it");
      turn_into_bypass(opening, more_bytes);
      return {};
    }
    if (options_.full == when_full::wait && wait_for_release(watch, until.room())) continue;
    return fail(errc::over_budget, "the budget is used up and no idle registration is left to evict");
  }
  opening.bytes += more_bytes;
  opening.counted = true;
  return {};
}

error engine::larger_than_budget() noexcept {
  return {errc::larger_than_budget, native_kind::none, 0, "this registration alone exceeds the budget"};
}

void engine::go_without_room(entry& opening, std::size_t bytes) noexcept {
  opening.bytes += bytes;
  counters_.add(counter::bypass_bytes, bytes);
}

// Gives back what was reserved for the entry: a bypass is outside the budget as a whole.
void engine::turn_into_bypass(entry& opening, std::size_t more_bytes) noexcept {
  opening.bypass = true;
  give_room_back(opening);
  counters_.add(counter::bypasses);
  counters_.add(counter::bypass_bytes, opening.bytes + more_bytes);
  opening.bytes += more_bytes;
}

bool engine::close_one_for_room() noexcept {
  if (queued_.empty() && evicting_.empty()) begin_evict_victims();
  if (queued_.empty() && evicting_.empty()) queue_released();
  if (entry* due = queued_.front()) {
    static_cast<void>(close(*due));  // on failure the entry is quarantined, and the sink told
    return true;
  }
  entry* victim = evicting_.front();
  if (victim == nullptr) return false;
  counters_.add(counter::evicted);
  history_.remember(victim->peer(), victim->covered().begin, miss_reason::evicted);
  static_cast<void>(close(*victim, event_kind::evicted));
  return true;
}

// Makes a little room when the driver is out of resources, one victim at a time. Success means that the caller asks the
// driver again.
result<void> engine::free_resources(const error& refused, std::uint64_t closes_before,
                                    const deadlines& until) noexcept {
  if (closes_done_ != closes_before) return {};
  release_watch watch;
  do {
    if (close_one_for_room()) return {};
  } while (closes_in_flight_ == 0 && wait_for_transient(watch, until));
  if (closes_in_flight_ > 0) {
    if (wait_for(this, until.others())) return {};
    return fail(errc::timed_out, "the budget is used up, and another thread's close did not finish in time");
  }
  static_cast<void>(retry_quarantined());
  if (closes_done_ != closes_before) return {};
  return tl::unexpected(refused);
}

void engine::shrink(entry& opening, std::size_t bytes) noexcept {
  const std::size_t less = opening.bytes - bytes;
  opening.bytes = bytes;
  if (opening.counted) budget_.give(less, 0);
  if (!opening.counted) counters_.subtract(counter::bypass_bytes, less);
  waiting_.notify(this);
}

// Counts bytes that are open already.
void engine::charge(entry& opening, std::size_t bytes) noexcept {
  if (!opening.counted) return go_without_room(opening, bytes);
  budget_.charge(bytes);
  opening.bytes += bytes;
}

void engine::give_room_back(entry& closed) noexcept {
  if (closed.counted) budget_.give(closed.bytes, 1);
  if (closed.bypass && !closed.counted) counters_.subtract(counter::bypass_bytes, closed.bytes);
  closed.counted = false;
  waiting_.notify(this);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Room in the budget, and room in the driver: which entries are closed for it (R7, R12, R14-R17).
#include "core/engine.hpp"

namespace pinfold::detail {

result<void> engine::reserve(entry& opening, std::size_t more_bytes, std::size_t more_count,
                             const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "only openers take room");
  if (opening.bypass) {
    table_.go_without_room(opening, more_bytes);
    return {};
  }
  if (!budget_.can_ever_hold(opening.bytes + more_bytes)) return tl::unexpected(larger_than_budget());
  bool retried = false;
  release_watch watch;
  while (!table_.take_room(opening, more_bytes, more_count)) {
    if (close_one_for_room()) continue;
    if (table_.closes_in_flight() > 0) {
      if (wait_for(this, until.others())) continue;
      return fail(errc::timed_out, "the budget is used up, and another thread's close did not finish in time");
    }
    if (!retried && table_.first_quarantined() != nullptr) {
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
      table_.turn_into_bypass(opening, more_bytes);
      waiting_.notify(this);
      return {};
    }
    if (options_.full == when_full::wait && wait_for_release(watch, until.room())) continue;
    return fail(errc::over_budget, "the budget is used up and no idle registration is left to evict");
  }
  return {};
}

error engine::larger_than_budget() noexcept {
  return {errc::larger_than_budget, native_kind::none, 0, "this registration alone exceeds the budget"};
}

// Marks a few victims at once, for one barrier. If hits pinned them all meanwhile, no sum of pins proves anything while
// hits go on. With all hits stopped at the same time it does: an entry that is still pinned was pinned at that moment,
// so that a request may be refused when all entries are pinned (R58).
void engine::mark_victims() noexcept {
  table_.begin_evict_victims();
  settle();
  if (table_.first_evicting() != nullptr || ledger::others() == 0) return;
  PINFOLD_ASSERT(table_.settled(), "hits of every entry are stopped at one time");
  table_.begin_evict_all();
  settle();
  table_.revive_all_but_a_batch();
}

// Queues the closes of entries that only failing hits had pinned, or that were released and are not finished yet: the
// releasing thread is between two steps.
void engine::queue_released() noexcept {
  if (table_.queue_released() > 0) closes_are_due();
  table_.retire_released();
  settle();
}

// Queues the closes of imports that were not used for `idle_timeout`: an importer does not learn that the exporter
// freed a buffer, and the exporter's memory stays allocated while it is mapped here. Entries that eviction marked
// before go, too: they were not used since the hand passed them.
void engine::queue_idle() noexcept {
  if (!sweep_.due()) return;
  table_.begin_evict_idle();
  settle();
  table_.retire_idle();
  settle();
}

bool engine::close_one_for_room() noexcept {
  if (!table_.any_closable()) mark_victims();
  if (!table_.any_closable()) queue_released();
  if (entry* due = table_.first_due()) {
    static_cast<void>(close(*due));  // on failure the entry is quarantined, and the sink told
    return true;
  }
  entry* victim = table_.first_evicting();
  if (victim == nullptr) return false;
  table_.count_eviction(*victim);
  static_cast<void>(close(*victim, event_kind::evicted));
  return true;
}

// Makes a little room when the driver is out of resources, one victim at a time. Success means that the caller asks the
// driver again.
result<void> engine::free_resources(const error& refused, std::uint64_t closes_before,
                                    const deadlines& until) noexcept {
  if (table_.closes_done() != closes_before) return {};
  release_watch watch;
  do {
    if (close_one_for_room()) return {};
  } while (table_.closes_in_flight() == 0 && wait_for_transient(watch, until));
  if (table_.closes_in_flight() > 0) {
    if (wait_for(this, until.others())) return {};
    return fail(errc::timed_out, "the budget is used up, and another thread's close did not finish in time");
  }
  static_cast<void>(retry_quarantined());
  if (table_.closes_done() != closes_before) return {};
  return tl::unexpected(refused);
}

}  // namespace pinfold::detail

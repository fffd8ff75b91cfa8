// SPDX-License-Identifier: BSD-3-Clause
// Taking room in the budget for an entry that is being opened (R12).
#include "core/engine_room.hpp"
#include "core/entry_table_open.hpp"
#include "core/node_request.hpp"

#include <chrono>
#include <cstddef>
#include <optional>

namespace pinfold::detail {

using refusal = core::budget::share::refusal;

namespace {

/// Bounds the closes of one request. Other threads may take all the room that it makes: in the end it has closed what
/// was there when it began.
class closes_for_room {
 public:
  /// Counts a close, and returns whether to look for room again, and to close more.
  [[nodiscard]] bool go_on(const core::budget& budget, const core::deadlines& until) noexcept {
    if (++count_ <= unchecked) return true;
    if (most_ == 0) most_ = count_ + budget.count_now();
    ended_ = count_ > most_ && std::chrono::steady_clock::now() >= until.making_room();
    return !ended_;
  }
  /// Returns whether `go_on` has returned false.
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  static constexpr std::size_t unchecked = 16;  // most requests need one
  std::size_t count_ = 0;
  std::size_t most_ = 0;
  bool ended_ = false;
};

}  // namespace

result<void> engine_room::reserve(shard& in, entry& opening, std::size_t more_bytes, std::size_t more_count,
                                  const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "only openers take room");
  if (opening.bypass) {
    in.table.go_without_room(opening, more_bytes);
    return {};
  }
  const auto all_bytes = opening.bytes + more_bytes;
  if (!budget_.can_ever_hold(all_bytes) || !budget_.node_can_ever_hold(all_bytes))
    return tl::unexpected(larger_than_budget());
  closes_for_room closes;
  bool retried = false;
  release_watch watch(changes_);
  core::node_request node(budget_.node(), more_bytes);
  for (;;) {
    if (takes_turns()) wait_for_turn(in, opening, watch, node, until);
    const bool gathered = budget_.gathered();
    if (in.table.take_room(opening, more_bytes, more_count)) return {};
    if (in.table.ended()) return tl::unexpected(cache_ended);
    const auto why = in.room.why();  // other threads write it while the mutex is free
    if (!gathered) {
      gather_room(in);
      continue;
    }
    if (budget_.node() != nullptr && other_processes_matter(in, node)) continue;
    const auto found = close_one_for_room(in);
    if (found == looked::closed_one && closes.go_on(budget_, until)) continue;
    if (found == looked::closing) {
      if (wait_for_change(in, watch.changes(), until.others())) continue;
      return fail(errc::timed_out, "the budget is used up, and another thread's close did not finish in time");
    }
    if (retry_quarantined_once(in, retried) || (why == refusal::node_full && dead_gave_room_at_last(in, node)))
      continue;
    in.room.insist();  // the request gave way as far as it can, and must learn why there is no room
    if (others_give_back() && in.table.take_room(opening, more_bytes, more_count)) return {};  // given back meanwhile
    // Room may have come back, and be in portions by now: also by the closes of this request.
    if (!budget_.gathered() && !closes.ended()) continue;
    if (const auto ended = without_room(in, opening, more_bytes, watch, node, until)) return *ended;
  }
}

// Applies `when_full` when nothing can be closed. Returns nothing if the request should look again.
std::optional<result<void>> engine_room::without_room(shard& in, entry& opening, std::size_t more_bytes,
                                                      release_watch& watch, core::node_request& node,
                                                      const deadlines& until) noexcept {
  const bool refused = options_.full == when_full::fail || (options_.full == when_full::bypass && !may_bypass(opening));
  if (refused && wait_for_transient(in, watch, until)) return {};
  if (options_.full == when_full::bypass) return bypass(in, opening, more_bytes, node);
  if (options_.full == when_full::wait && wait_for_room(in, opening, watch, node, until)) return {};
  return result<void>(tl::unexpected(no_room(in, opening, node)));
}

bool engine_room::may_bypass(const entry& opening) const noexcept {
  return options_.full == when_full::bypass && !opening.persistent && !opening.merged;
}

// Refuses a persistent request, which relies on the registration: a bypass ends with its last lease.
result<void> engine_room::bypass(shard& in, entry& opening, std::size_t more_bytes,
                                 core::node_request& request) noexcept {
  if (!may_bypass(opening)) {
    tell_refusal(in, opening, request);
    return fail(errc::over_budget, "the budget is used up, and a persistent registration cannot bypass it");
  }
  in.table.turn_into_bypass(opening, more_bytes);
  changes_.notify();
  return {};
}

error engine_room::no_room(shard& in, const entry& opening, core::node_request& request) noexcept {
  const bool node_full = in.room.why() == refusal::node_full;
  tell_refusal(in, opening, request);
  return {errc::over_budget, native_kind::none, 0,
          node_full ? "the node's budget is used up and no idle registration is left to evict"
                    : "the budget is used up and no idle registration is left to evict"};
}

void engine_room::gather_room(shard& in) noexcept {
  const os::scoped_unlock free(in.mutex);
  shards_.gather_room(budget_);
}

error engine_room::larger_than_budget() noexcept {
  return {errc::larger_than_budget, native_kind::none, 0, "this registration alone exceeds the budget"};
}

}  // namespace pinfold::detail

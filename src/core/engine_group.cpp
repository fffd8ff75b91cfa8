// SPDX-License-Identifier: BSD-3-Clause
// Serves several requests with fewer calls of the driver: opens plain misses together, and the rest one by one.
#include "core/engine.hpp"

#include <array>

namespace pinfold::detail {

/// The requests of a group that are opened together.
struct engine::group {
  std::size_t size = 0;
  std::array<std::size_t, most_in_group> number;  // the index of the request
  std::array<entry*, most_in_group> fresh;
  std::array<miss_reason, most_in_group> reason;
};

void engine::acquire_group(std::span<const request> what, std::span<result<grant>> granted) noexcept {
  static_cast<void>(ledger::of_this_thread());
  std::array<bool, most_in_group> done{};
  if (driver_.open_many != nullptr && !options_.trace_requests && !audit_) {
    std::array<result<range>, most_in_group> extents;
    for (std::size_t i = 0; i < what.size(); ++i) extents[i] = checked(what[i]);
    for (std::size_t i = 0; i < what.size(); ++i)
      if (extents[i]) {
        catch_up(what[i]);
        if (!prepare_filter(*extents[i])) extents[i] = tl::unexpected(no_memory_for_page_counts());
      }
    std::array<bool, most_in_group> alone{};
    for (std::size_t i = 0; i < what.size(); ++i) alone[i] = extents[i] && others_could_take(what[i], *extents[i]);
    group claimed;
    os::scoped_lock guard(mutex_);
    for (std::size_t i = 0; i < what.size() && spare_entry(); ++i)
      done[i] = extents[i] && !alone[i] && claim_if_simple(what[i], *extents[i], i, claimed);
    static_cast<void>(close_queued(closes_per_miss * claimed.size));  // a failed entry is quarantined, the sink told
    if (claimed.size > 0) open_group(what, claimed, granted);
  }
  for (std::size_t i = 0; i < what.size(); ++i)
    if (!done[i]) granted[i] = acquire(what[i]);
}

// Claims an entry if the request is a miss for which there is room at once. Hits, joins and everything that may have to
// wait go the usual way: waiting here would delay the other members of the group.
bool engine::claim_if_simple(const request& what, const range& extent, std::size_t number, group& claimed) noexcept {
  if (table_.ended() || what.unbudgeted) return false;
  lookup_result seen;
  if (!what.unshared) table_.scan(what, extent, seen);
  if (seen.match != nullptr || seen.twin != nullptr || (seen.near && merges(what))) return false;
  const extent_to_open to = plain_extent(what, extent, seen);
  if (!budget_.has_room(to.covered.size(), 1)) return false;
  counters_.add(counter::acquires);
  claimed.reason[claimed.size] = reason_of_miss(what, extent, seen);
  entry& fresh = claim(what, to, seen);
  [[maybe_unused]] const bool taken = table_.take_room(fresh, to.covered.size(), 1);
  PINFOLD_ASSERT(taken, "there was room, under this mutex");
  claimed.number[claimed.size] = number;
  claimed.fresh[claimed.size++] = &fresh;
  return true;
}

void engine::open_group(std::span<const request> what, group& claimed, std::span<result<grant>> granted) noexcept {
  const deadlines until(options_);
  std::array<open_request, most_in_group> asked;
  std::array<result<opened>, most_in_group> made;
  for (std::size_t i = 0; i < claimed.size; ++i) {
    entry& one = *claimed.fresh[i];
    const auto* token = reinterpret_cast<const std::byte*>(one.hot()) + token_offset_;
    asked[i] = {one.peer(), one.covered(), token, one.access, what[claimed.number[i]].argument};
    table_.enter_driver(one);
  }
  const auto closes_before = table_.closes_done();
  mutex_.unlock();
  std::array<bool, most_in_group> seen;
  for (std::size_t i = 0; i < claimed.size; ++i) seen[i] = monitors_watch(asked[i].extent);
  {
    const auto turn = driver_turn();
    driver_.open_many(driver_.self, std::span(asked).first(claimed.size), std::span(made).first(claimed.size));
  }
  mutex_.lock();
  for (std::size_t i = 0; i < claimed.size; ++i) {
    table_.leave_driver(*claimed.fresh[i]);
    if (!seen[i]) table_.make_unshared(*claimed.fresh[i]);
  }
  for (const bool succeeded : {true, false}) {  // refused ones last: they may have to wait
    for (std::size_t i = 0; i < claimed.size; ++i)
      if (made[i].has_value() == succeeded) conclude(what, claimed, i, made[i], closes_before, until, granted);
  }
}

void engine::conclude(std::span<const request> what, const group& claimed, std::size_t i, result<opened>& made,
                      std::uint64_t closes_before, const deadlines& until, std::span<result<grant>> granted) noexcept {
  const auto number = claimed.number[i];
  granted[number] = finish(*claimed.fresh[i], what[number], made, closes_before, until);
  if (granted[number]) {
    count_miss(claimed.reason[i]);
  } else {
    counters_.add(counter::failed_acquires);
  }
}

}  // namespace pinfold::detail

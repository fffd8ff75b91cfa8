// SPDX-License-Identifier: BSD-3-Clause
// Serves several requests with fewer calls of the driver: opens plain misses together, and the rest one by one.
#include "core/engine_open.hpp"
#include "core/engine_requests.hpp"

#include <array>
#include <utility>

namespace pinfold::detail {

/// A request of a group that is opened together with others.
struct engine_requests::group_member {
  std::size_t number;  ///< the index of the request
  shard* in;
  entry* fresh;  ///< null when its open has ended
  miss_reason reason;
  range extent;
  overlaps_elsewhere other;
  closes_known before;
};

struct engine_requests::group {
  std::uint64_t events_before = 0;
  std::size_t size = 0;
  std::array<group_member, most_in_group> members;
};

void engine_requests::acquire_group(std::span<const request> what, std::span<result<grant>> granted) noexcept {
  PINFOLD_ASSERT(what.size() <= most_in_group && granted.size() == what.size(),
                 "a group has its size, and a place for each result");
  static_cast<void>(ledger::of_this_thread());
  std::array<bool, most_in_group> done{};
  if (driver_.opens_many() && !options_.trace_requests && !audit_) {
    group claimed;
    claim_group(what, claimed);
    for (std::size_t i = 0; i < claimed.size; ++i) done[claimed.members[i].number] = true;
    if (claimed.size > 0) open_group(what, claimed, granted);
  }
  for (std::size_t i = 0; i < what.size(); ++i)
    if (!done[i]) granted[i] = acquire(what[i]);
}

void engine_requests::claim_group(std::span<const request> what, group& claimed) noexcept {
  claimed.events_before = event_log_.generation().load(std::memory_order_acquire);
  for (std::size_t i = 0; i < what.size(); ++i) {
    const auto extent = checked(what[i]);
    if (!extent) continue;
    catch_up(what[i]);
    if (!prepare_filter(*extent) || others_could_take(what[i], *extent)) continue;
    shard& in = shards_[shards_.map().shard_of(*extent)];
    auto& next = claimed.members[claimed.size];
    next = {i, &in, nullptr, {}, *extent, {}, {}};
    if (!shards_.map().one() && announce_level(*extent, next.other) && !what[i].unshared)
      if (served_elsewhere(in, what[i], *extent, next.other)) continue;
    os::scoped_lock guard(in.mutex);
    if (!spare_entry(in)) return;
    if (claim_if_simple(in, what[i], next)) ++claimed.size;
    static_cast<void>(close_queued(in, closes_per_miss));  // a failed entry is quarantined, the sink told
  }
}

// Returns whether another shard has an entry that serves the request, or will once it is open.
bool engine_requests::served_elsewhere(const shard& in, const request& what, const range& extent,
                                       overlaps_elsewhere& other) noexcept {
  for (shard& each : shards_.others(shards_.map().overlapping(extent), in)) {
    lookup_result seen;
    os::scoped_lock guard(each.mutex);
    each.table.scan(what, extent, seen);
    if (seen.match != nullptr) return true;
    other.around = other.around | seen.around;
    other.beside = other.beside || seen.beside;
  }
  return false;
}

// Claims an entry if the request is a miss for which there is room at once. Hits, joins and requests that may have to
// wait take the usual path: waiting here would delay the other members of the group.
bool engine_requests::claim_if_simple(shard& in, const request& what, group_member& next) noexcept {
  if (in.table.ended() || what.unbudgeted) return false;
  lookup_result seen;
  look(in, what, next.extent, next.other, seen);
  if (seen.borrowed != access_flags::none) return false;
  if (seen.match != nullptr || seen.twin != nullptr || (seen.near && merges(what))) return false;
  const extent_to_open to = plain_extent(what, next.extent, seen);
  if (!in.room.take(to.covered.size(), 1)) return false;
  in.counts.add(counter::acquires);
  next.reason = reason_of_miss(in, what, next.extent, seen);
  next.fresh = &claim(in, what, to, seen).one;
  in.table.note_room(*next.fresh, to.covered.size(), 1);
  in.table.enter_driver(*next.fresh);
  next.before = driver_.closes_now();
  return true;
}

void engine_requests::open_group(std::span<const request> what, group& claimed,
                                 std::span<result<grant>> granted) noexcept {
  const deadlines until(options_);
  std::array<open_request, most_in_group> asked;
  std::array<result<opened>, most_in_group> made;
  std::array<bool, most_in_group> watched;
  for (std::size_t i = 0; i < claimed.size; ++i) {
    const auto& one = claimed.members[i];
    const auto* token = driver_.token_of(*one.fresh->hot());
    asked[i] = {one.fresh->peer(), one.fresh->covered(), token, one.fresh->access, what[one.number].argument};
    watched[i] = monitors_.watch(asked[i].extent, reporter_);
  }
  driver_.open_many(std::span(asked).first(claimed.size), std::span(made).first(claimed.size));
  read_up_to_now();
  const bool replaced = event_log_.generation().load(std::memory_order_acquire) != claimed.events_before;
  for (std::size_t i = 0; i < claimed.size; ++i) {
    auto& one = claimed.members[i];
    const bool taken = replaced && others_could_take(what[one.number], asked[i].extent);
    os::scoped_lock guard(one.in->mutex);
    one.in->table.leave_driver(*one.fresh);
    if (!watched[i] || taken || (made[i] && made[i]->for_one_lease)) one.in->table.make_unshared(*one.fresh);
  }
  for (const bool succeeded : {true, false}) {  // refused ones last: they may have to wait
    for (std::size_t i = 0; i < claimed.size; ++i) {
      auto& one = claimed.members[i];
      if (one.fresh == nullptr || made[i].has_value() != succeeded) continue;  // a retry changes the answer
      granted[one.number] = conclude(what[one.number], one, made[i], until);
    }
  }
}

result<grant> engine_requests::conclude(const request& what, group_member& one, result<opened>& made,
                                        const deadlines& until) noexcept {
  shard& in = *one.in;
  PINFOLD_ASSERT(one.fresh != nullptr, "a member is concluded once");
  entry& fresh = *std::exchange(one.fresh, nullptr);
  result<grant> granted = [&] {
    os::scoped_lock guard(in.mutex);
    auto finished = finish(in, fresh, what, made, one.before, until);
    one.other.opened = finished && !shards_.map().one() && fresh.findable();
    count_end(in, finished, one.reason);
    return finished;
  }();
  if (one.other.opened) supersede_elsewhere(in, *record_of(granted->held), one.other);
  return granted;
}

}  // namespace pinfold::detail

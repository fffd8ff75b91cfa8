// SPDX-License-Identifier: BSD-3-Clause
// Finding entries for requests, mostly in one shard, and waiting for entries that other threads open or close.
#include "core/engine_open.hpp"
#include "core/engine_requests.hpp"

#include <utility>

namespace pinfold::detail {

namespace {

constexpr error newer_memory{errc::stale_handle, native_kind::none, 0, "other memory has this address by now"};

}  // namespace

// Looks for a hit before asking the driver what it would register, which may cost more than a hit.
grant engine_requests::hit_if_live(shard& in, const request& what) noexcept {
  if (in.table.ended() || what.unshared) return {};
  lookup_result seen;
  in.table.scan(what, first_byte(what), seen);
  entry* found = seen.match;
  if (found == nullptr || found->now() == entry_state::opening) return {};
  in.counts.add(counter::acquires);
  return hit(in, *found, what);
}

// Looks under the mutex for entries that hits do not see: `evicting`, not hittable, or not in the hit table.
grant engine_requests::find_any(const request& what) noexcept {
  auto got = driver_.imports() ? look_up_any(what.peer, what.wanted, what.token, asked_by::find, 0)
                               : look_up_any(what.wanted.begin, what.wanted.end, what.need, asked_by::find, 0);
  if (got.held != 0) return got;
  catch_up(what);
  for (shard& in : shards_.of(shards_.map().containing(what.wanted))) {
    os::scoped_lock guard(in.mutex);
    got = find_in(in, what);
    if (got.held != 0) return got;
  }
  shard& in = shards_[shards_.map().shard_of(what.wanted)];
  os::scoped_lock guard(in.mutex);
  in.counts.add(counter::find_misses);
  return got;
}

grant engine_requests::find_in(shard& in, const request& what) noexcept {
  lookup_result seen;
  if (!in.table.ended()) in.table.scan(what, first_byte(what), seen);
  if (entry* found = seen.match; found != nullptr && found->now() != entry_state::opening) {
    in.table.hit_for_find(*found);
    return grant_on(*found->hot(), what);
  }
  for (; seen.other_token != nullptr; in.table.scan(what, first_byte(what), seen))
    replace(in, *seen.other_token);  // only marks: `find` never calls the driver
  return {};
}

grant engine_requests::hit(shard& in, entry& found, const request& what) noexcept {
  in.table.hit(found, what);
  return grant_on(*found.hot(), what);
}

result<grant> engine_requests::acquire_slowly(shard& in, const request& what, const range& extent,
                                              overlaps_elsewhere& other) noexcept {
  const deadlines until(options_);
  bool was_replaced = false;
  bool tidied = false;
  bool merging = merges(what);
  bool patient = true;
  lookup_result seen;
  for (;;) {  // starts over after each wait: earlier reads are out of date
    if (!spare_entry(in))
      return refused(in, {errc::out_of_resources, native_kind::none, 0, "no memory for another entry"});
    if (in.table.ended()) return refused(in, cache_ended);
    look(in, what, extent, other, seen);
    if (entry* found = seen.match) {
      if (found->now() != entry_state::opening) return hit(in, *found, what);
      auto joined = join(in, *found, what, until);
      if (!joined) return refused(in, joined.error());
      if (joined->held == 0) continue;
      return joined;
    }
    if (!std::exchange(tidied, true) && close_some_due(in)) continue;
    if (seen.other_token != nullptr) {
      if (what.meanwhile != nullptr) return refused(in, newer_memory);  // a restored handle proves nothing
      was_replaced = true;
      replace_and_close(in, *seen.other_token);
      continue;
    }
    if (seen.twin != nullptr) {
      if (auto gone = wait_out(in, *seen.twin, until); !gone) return refused(in, gone.error());
      continue;
    }
    if (merging && seen.near && wait_for_overlapping_open(in, what, extent, until, patient)) continue;
    const auto reason = was_replaced ? miss_reason::invalidated : reason_of_miss(in, what, extent, seen);
    const extent_to_open to = merging ? merged_extent(in, what, extent, seen) : plain_extent(what, extent, seen);
    auto granted = open(in, what, to, seen, until);
    if (granted) {
      other.opened = !shards_.map().one() && index::record_page::entry_of(record_of(granted->held)).findable();
      return count_miss(in, reason), granted;
    }
    if (!to.merged) return refused(in, granted.error());
    merging = false;
  }
}

// Looks in the shard of a miss, and adds what the look at the other shards found.
void engine_requests::look(shard& in, const request& what, const range& extent, const overlaps_elsewhere& other,
                           lookup_result& seen) noexcept {
  in.table.set_held_apart();
  if (!what.unshared) in.table.scan(what, extent, seen);
  seen.borrowed = core::without(other.around, what.need | seen.around);
  seen.around = seen.around | other.around;
  seen.beside = seen.beside || other.beside;
}

// Does a few of the due closes, as part of a miss. Returns whether there were any.
bool engine_requests::close_some_due(shard& in) noexcept {
  queue_idle(in);
  if (in.table.first_due() == nullptr) return false;
  static_cast<void>(close_queued(in, closes_per_miss));  // on failure the entry is quarantined, and the sink told
  return true;
}

tl::unexpected<error> engine_requests::refused(shard& in, const error& why) noexcept {
  in.counts.add(counter::failed_acquires);
  return tl::unexpected(why);
}

// Waits for an overlapping open, to merge with it too. Returns whether there was one: then the caller looks up again.
// `patient` becomes false if the open did not end in time.
bool engine_requests::wait_for_overlapping_open(shard& in, const request& what, const range& extent,
                                                const deadlines& until, bool& patient) noexcept {
  const entry* const opening = patient ? in.table.opening_there(what.peer, extent) : nullptr;
  if (opening == nullptr) return false;
  patient = wait_for(in, opening, until.others());
  return true;
}

// Waits for another thread's open. Returns an empty grant if the caller has to look up again: the open failed with
// other access than the request needs, or succeeded without some of it; it became a bypass, which ends with its last
// lease, but the request is persistent; or what made the driver refuse may have been closed before this request began.
result<grant> engine_requests::join(shard& in, entry& opening, const request& what, const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.doomed, "only what requests may find is joined");
  opening.own_pins().fetch_add(
      1, std::memory_order_seq_cst);  // from here on the entry cannot be reused, whatever becomes of the open
  const open_waiter self(in.open_waiters, opening);
  while (opening.now() == entry_state::opening) {
    if (wait_for(in, &opening, until.others()) || opening.now() != entry_state::opening) continue;
    opening.own_pins().fetch_sub(1, std::memory_order_seq_cst);  // the opener still owns the entry
    return fail(errc::timed_out, "another thread is still opening this handle");
  }
  const bool made = opening.now() == entry_state::live || opening.now() == entry_state::draining;
  const bool stays = !what.persistent || !opening.bypass;
  const bool suits =
      made ? stays && contains_all(opening.access, what.need) : opening.access == what.need && !opening.merged;
  if (made && suits) {
    in.table.count_hit(opening, what);
    return grant_on(*opening.hot(), what);
  }
  static_cast<void>(unpin(in, opening));  // if a close fails, the entry is quarantined, and the sink told
  if (!suits || self.outdated()) return grant{};
  return tl::unexpected(self.why());
}

result<void> engine_requests::wait_out(shard& in, entry& one, const deadlines& until) noexcept {
  PINFOLD_ASSERT(!one.findable(), "a twin is hidden");
  switch (one.now()) {
    case entry_state::quarantined: {
      if (open_waiter::waits(in.open_waiters, one)) break;
      auto closed = close(in, one);
      if (closed) return {};
      error why = closed.error();
      why.code = errc::in_use_conflict;
      return tl::unexpected(why);
    }
    case entry_state::draining:
      if (one.in == index::list_id::queued || one.pins() == 0) {
        static_cast<void>(close(in, one));  // if it fails, the next look finds it in quarantine
        return {};
      }
      if (wait_for(in, &one, end_of_conflict(one, until))) return {};
      return fail(errc::in_use_conflict, "leases still hold an invalidated registration of this handle");
    default: break;
  }
  if (wait_for(in, &one, until.others())) return {};
  return fail(errc::timed_out, "another thread is still closing this handle");
}

engine_requests::miss_reason engine_requests::reason_of_miss(shard& in, const request& what, const range& extent,
                                                             const lookup_result& seen) const noexcept {
  if (seen.around != access_flags::none) return miss_reason::access;
  const auto past = in.table.past_of(what.peer, extent.begin);
  if (past != miss_reason::cold) return past;
  return seen.beside ? miss_reason::extent : miss_reason::cold;
}

// Ensures that `claim` needs no memory. Returns false if there is none. Without memory to set them apart, entries that
// only leases hold stay where they are.
bool engine_requests::spare_entry(shard& in) noexcept { return in.table.ready() || make_spare_entry(in); }

bool engine_requests::make_spare_entry(shard& in) noexcept {
  if (const auto step = in.hits.wants(); step != 0) grow_hit_table(in, step);
  for (bool tried = false;;) {
    if (in.pool.empty()) {
      if (!grow_pool(in)) return false;
    } else if (!in.table.index_ready()) {
      if (!grow_index(in)) return false;
    } else if (!in.table.wants_room_apart() || std::exchange(tried, true)) {
      return true;
    } else {
      static_cast<void>(grow_index(in));
    }
  }
}

bool engine_requests::grow_pool(shard& in) noexcept {
  auto more = os::unlocked(in.mutex,
                           [&] { return index::entry_pool::make_chunk(driver_.record_bytes(), reporter_.has_page()); });
  if (!more) return false;
  in.pool.adopt(std::move(more));
  return true;
}

bool engine_requests::grow_index(shard& in) noexcept {
  const auto bytes = in.table.next_index_chunk();
  auto more = os::unlocked(in.mutex, [&] { return index::range_index::make_chunk(bytes); });
  if (!more) return false;
  in.table.adopt(std::move(more));
  return true;
}

// Grows the hit table. Without memory for that, some hits take the mutex.
void engine_requests::grow_hit_table(shard& in, unsigned step) noexcept {
  in.hits.say_will_grow();
  auto larger = os::unlocked(in.mutex, [&] { return index::hit_table::memory(step); });
  in.table.grow_hit_table(std::move(larger));
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Serves requests that the hit path did not serve. Nearly all are plain misses: no entry overlaps the memory, there is
// room for it, and nothing else is due. `plain_miss` takes the steps of `acquire_generally` in one function, except
// those that only other requests need. If a request proves not plain before the claim, `acquire_generally` starts over;
// after it, `open_claimed` and `finish` go on.
#include "core/engine_open.hpp"
#include "core/engine_requests.hpp"
#include "core/pin_now.hpp"
#include "os/no_cancellation.hpp"

namespace pinfold::detail {

result<grant> engine_requests::grant_for(const request& asked) noexcept {
  request what = asked;
  what.events_before = event_log_.generation().load(std::memory_order_acquire);
  result<grant> granted;
  if (plain_miss(what, granted)) return granted;
  what.events_before = 0;  // asks again in any case: it may wait before the claim, when no event tells of new mappings
  return acquire_generally(what);
}

// Flattened: the calls between the parts would take a fifth of the instructions (scripts/hit-cost). Off the plain path
// the thread may wait or call the sink, so it must not be cancelled there.
[[gnu::flatten]] bool engine_requests::plain_miss(const request& what, result<grant>& granted) noexcept {
  ledger* const mine = ledger::if_there();
  if (mine == nullptr) return false;
  if (what.persistent || what.unshared || what.unbudgeted || hits_need_the_mutex() || monitors_.strict()) return false;
  if (!view_.current()) return false;
  const auto extent = checked(what);
  if (!extent || !prepare_filter(*extent) || others_could_take(what, *extent)) return false;
  if (any_remote(what.need) && !(what.wanted == *extent)) return false;
  overlaps_elsewhere other;
  const bool one_shard = shards_.map().one();
  const bool elsewhere = !one_shard && announce_level(*extent, other);
  if (other.wide) return false;
  shard& in = shards_[one_shard ? 0 : shards_.map().shard_at_smallest(extent->begin)];
  if (elsewhere && any_elsewhere(in, what.peer, *extent)) return false;

  const entry* const fresh = [&]() -> const entry* {
    os::scoped_lock guard(in.mutex);
    lookup_result seen;
    if (!is_plain_in(in, what, *extent, seen)) return nullptr;
    return &open_plainly(in, what, *extent, seen, mine, granted);
  }();
  if (fresh == nullptr) return false;
  if (!granted) [[unlikely]] {
    const no_cancellation guard;
    look_again_elsewhere(in, what, *extent, other, granted);
  } else if (!one_shard && shards_.map().wide_published() != other.wide_before) [[unlikely]] {
    const no_cancellation guard;
    if (still_findable(in, *fresh)) supersede_elsewhere(in, *record_of(granted->held), other);
  }
  return true;
}

[[gnu::always_inline]] inline bool engine_requests::is_plain_in(shard& in, const request& what, const range& extent,
                                                                lookup_result& seen) noexcept {
  if (!in.table.ready() || in.table.ended() || !in.table.finds_alone(what.peer, extent, seen)) return false;
  if (in.sweep.wanted()) queue_idle(in);  // leaves `seen` valid
  return in.table.first_due() == nullptr;
}

[[gnu::always_inline]] inline entry& engine_requests::open_plainly(shard& in, const request& what, const range& extent,
                                                                   lookup_result& seen, ledger* mine,
                                                                   result<grant>& granted) noexcept {
  const deadlines until(options_);
  in.counts.add(counter::acquires);
  const auto reason = in.table.past_of(what.peer, extent.begin);
  const auto [fresh, hot] = claim(in, what, {extent, what.need, true}, seen);
  if (!in.table.take_room(fresh, fresh.covered().size(), 1)) [[unlikely]] {
    const no_cancellation guard;
    granted = open_claimed(in, fresh, what, until);
  } else {
    const auto before = driver_.closes_now();
    auto made = call_open(in, fresh, hot, what);
    const bool plain = made && made->bytes == fresh.bytes && made->covered == hot.covered() && in.pending.empty() &&
                       !fresh.doomed && !hot.is(record::stale);
    if (plain) [[likely]] {
      const pin held = core::pin_now(mine, &hot);
      publish(in, fresh, hot, *made);
      *granted = grant_on(held, hot, what);
    } else {
      const no_cancellation guard;
      granted = finish(in, fresh, what, made, before, until);
    }
  }
  count_end(in, granted, reason);
  return fresh;
}

[[gnu::noinline]] result<grant> engine_requests::acquire_generally(const request& what) noexcept {
  static_cast<void>(ledger::of_this_thread());  // makes the ledger for later hits
  const bool changed = catch_up(what);
  if (hits_need_the_mutex() || what.persistent || monitors_.any()) {
    const bool any = hits_need_the_mutex() || what.persistent || changed;
    if (const auto hit = hit_under_mutex(what, any); hit.held != 0) return hit;
  }
  auto extent = checked(what);
  if (extent && !prepare_filter(*extent)) extent = tl::unexpected(no_memory_for_page_counts());
  shard& in = shards_[shards_.map().shard_of(extent ? *extent : first_byte(what))];
  if (!extent) {
    os::scoped_lock guard(in.mutex);
    in.counts.add(counter::acquires);
    return refused(in, extent.error());
  }
  if (!others_could_take(what, *extent)) return acquire_from(in, what, *extent);
  // A registration for one lease only, unless the memory was registered with its descriptor.
  if (const auto hit = hit_under_mutex(what, true); hit.held != 0) return hit;
  auto granted = acquire_from(in, for_one_lease(what), *extent);
  os::scoped_lock guard(in.mutex);
  in.counts.add(counter::file_backed);
  return granted;
}

// Looks for a hit under the mutexes, in shards that may have an entry that covers the request: in all of them, or only
// where entries are open that hits do not see.
grant engine_requests::hit_under_mutex(const request& what, bool any) noexcept {
  for (shard& in : shards_.of(shards_.map().containing(what.wanted))) {
    if (!any && open_not_hittable(in) == 0) continue;
    os::scoped_lock guard(in.mutex);
    if (const auto found = hit_if_live(in, what); found.held != 0) return found;
  }
  return {};
}

// Acquires from the shard that has the entries of this extent.
result<grant> engine_requests::acquire_from(shard& in, const request& what, const range& extent) noexcept {
  overlaps_elsewhere other;
  if (!shards_.map().one() && announce_level(extent, other) && !what.unshared)
    if (auto served = look_elsewhere(in, what, extent, other)) return *served;
  result<grant> granted = [&] {
    os::scoped_lock guard(in.mutex);
    in.counts.add(counter::acquires);
    return acquire_slowly(in, what, extent, other);
  }();
  if (other.opened) supersede_elsewhere(in, *record_of(granted->held), other);
  if (!granted) look_again_elsewhere(in, what, extent, other, granted);
  return granted;
}

request engine_requests::for_one_lease(request what) noexcept {
  what.unshared = true;
  what.persistent = false;
  return what;
}

error engine_requests::no_memory_for_page_counts() noexcept {
  return {errc::out_of_resources, native_kind::none, 0, "no memory to count the registered pages"};
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Finding entries for requests, and waiting for entries that other threads open or close.
#include "core/engine.hpp"
#include "os/backing.hpp"
#include "os/mapped.hpp"

namespace pinfold::detail {

namespace {

// Every entry that covers the request covers its first byte. Other entries that overlap the request need no look.
range first_byte(const request& what) noexcept { return {what.wanted.begin, what.wanted.begin + 1}; }

}  // namespace

result<grant> engine::grant_for(const request& what) noexcept {
  static_cast<void>(ledger::of_this_thread());  // makes the ledger for the hits to come
  const bool changed = catch_up(what);
  if (hits_need_the_mutex() || what.persistent || monitors_ != nullptr) {
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
grant engine::hit_under_mutex(const request& what, bool any) noexcept {
  grant found;
  core::for_each_shard(shards_.map().containing(what.wanted), [&](std::size_t number) {
    shard& in = shards_[number];
    if (found.held != 0 || (!any && open_not_hittable(in) == 0)) return;
    os::scoped_lock guard(in.mutex);
    found = hit_if_live(in, what);
  });
  return found;
}

// Acquires from the shard that has the entries of this extent.
result<grant> engine::acquire_from(shard& in, const request& what, const range& extent) noexcept {
  overlaps_elsewhere other;
  if (!shards_.map().one() && is_elsewhere(extent, other) && !what.unshared)
    if (auto served = look_elsewhere(in, what, extent, other)) return *served;
  result<grant> granted = [&] {
    os::scoped_lock guard(in.mutex);
    in.counts.add(counter::acquires);
    return acquire_slowly(in, what, extent, other);
  }();
  if (other.opened) supersede_elsewhere(in, *record_of(granted->held), other);
  if (!granted && granted.error().code == errc::in_use_conflict && !shards_.map().one() && !what.unshared) {
    // In the way may be what serves the request, and was not there yet.
    if (auto served = look_elsewhere(in, what, extent, other); served && served->has_value()) return *served;
  }
  return granted;
}

// Refuses bad input before the mutex is taken and before any work whose cost grows with the size (R59). `monitors_` is
// set only where monitors watch mappings of this process; with `manual` a cache accepts any addresses.
result<range> engine::checked(const request& what) const noexcept {
  constexpr std::size_t huge = std::size_t{1} << 32U;
  auto extent = driver_.check(driver_.self, what);
  if (!extent || driver_.token_bytes > 0) return extent;
  const auto [begin, end] = what.wanted;
  if (!what.unbudgeted && !budget_.can_ever_hold(end - begin)) return tl::unexpected(larger_than_budget());
  if (monitors_ != nullptr && end - begin >= huge && !(os::is_mapped(begin) && os::is_mapped(end - 1)))
    return fail(errc::invalid_range, "part of the range is not mapped");
  return extent;
}

bool engine::is_of_a_file(const request& what, const range& extent) const noexcept {
  const auto behind = backing_of(extent, what.file);
  return behind > backing::program || (behind == backing::program && !options_.program_data);
}

request engine::for_one_lease(request what) noexcept {
  what.unshared = true;
  what.persistent = false;
  return what;
}

error engine::no_memory_for_page_counts() noexcept {
  return {errc::out_of_resources, native_kind::none, 0, "no memory to count the registered pages"};
}

// Looks for a hit before the driver is asked what it would register, which may cost more than a hit.
grant engine::hit_if_live(shard& in, const request& what) noexcept {
  if (in.table.ended() || what.unshared) return {};
  lookup_result seen;
  in.table.scan(what, first_byte(what), seen);
  entry* found = seen.match;
  if (found == nullptr || found->now() == entry_state::opening) return {};
  in.counts.add(counter::acquires);
  return hit(in, *found, what);
}

// Looks under the mutex for entries that hits do not see: `evicting`, not hittable, or not in the hit table.
grant engine::find_any(const request& what) noexcept {
  auto got = driver_.token_bytes > 0 ? look_up_any(what.peer, what.wanted, what.token, asked_by::find, 0)
                                     : look_up_any(what.wanted.begin, what.wanted.end, what.need, asked_by::find, 0);
  if (got.held != 0) return got;
  catch_up(what);
  core::for_each_shard(shards_.map().containing(what.wanted), [&](std::size_t number) {
    shard& in = shards_[number];
    if (got.held != 0) return;
    os::scoped_lock guard(in.mutex);
    got = find_in(in, what);
  });
  if (got.held != 0) return got;
  shard& in = shards_[shards_.map().shard_of(what.wanted)];
  os::scoped_lock guard(in.mutex);
  in.counts.add(counter::find_misses);
  return got;
}

grant engine::find_in(shard& in, const request& what) noexcept {
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

grant engine::hit(shard& in, entry& found, const request& what) noexcept {
  in.table.hit(found, what);
  return grant_on(*found.hot(), what);
}

// Announces the cell of a new entry. Returns whether other shards may have entries that overlap it.
bool engine::is_elsewhere(const range& extent, overlaps_elsewhere& other) noexcept {
  const auto level = core::shard_map::level_of(extent);
  shards_.map().use(level);
  other.wide = level > 0;
  other.wide_before = wide_published_.load(std::memory_order_seq_cst);
  return other.wide || !shards_.map().smallest_only();
}

// Looks in the other shards that may have entries of that extent. Returns what the request is served with, or nothing
// when it has to be opened.
std::optional<result<grant>> engine::look_elsewhere(const shard& in, const request& what, const range& extent,
                                                    overlaps_elsewhere& other) noexcept {
  std::optional<result<grant>> served;
  core::for_each_shard(shards_.map().overlapping(extent), [&](std::size_t number) {
    shard& each = shards_[number];
    if (&each == &in || served) return;
    os::scoped_lock guard(each.mutex);
    served = look_in(each, what, extent, other);
  });
  return served;
}

std::optional<result<grant>> engine::look_in(shard& other, const request& what, const range& extent,
                                             overlaps_elsewhere& seen) noexcept {
  const deadlines until(options_);
  while (!other.table.ended()) {
    lookup_result found;
    other.table.scan(what, extent, found);
    seen.around = seen.around | found.around;
    seen.beside = seen.beside || found.beside;
    if (found.match == nullptr) break;
    const bool open = found.match->now() != entry_state::opening;
    auto served = open ? hit(other, *found.match, what) : join(other, *found.match, what, until);
    if (served && served->held == 0) continue;
    other.counts.add(counter::acquires);
    if (!served) return refused(other, served.error());
    return served;
  }
  return {};
}

// After a miss: retires the entries of other shards that the new one covers, and the new one if another thread
// published one in another shard that covers it. A thread first publishes, then says so if its entry could cover
// others, and then looks, so that of two threads at least one sees the other's entry.
void engine::supersede_elsewhere(shard& in, const record& fresh, const overlaps_elsewhere& other) noexcept {
  if (!other.wide && wide_published_.load(std::memory_order_seq_cst) == other.wide_before) [[likely]]
    return;
  const range covered = fresh.covered();
  const entry& one = index::record_page::entry_of(&fresh);  // pinned by the caller's lease, so it is the same
  if (other.wide) {
    wide_published_.fetch_add(1, std::memory_order_seq_cst);
    if (!still_findable(in, one)) return;
    core::for_each_shard(shards_.map().overlapping(covered), [&](std::size_t number) {
      shard& each = shards_[number];
      if (&each == &in) return;
      os::scoped_lock guard(each.mutex);
      each.table.supersede(covered, one.access, nullptr);
      settle(each);
    });
  }
  if (wide_published_.load(std::memory_order_seq_cst) == other.wide_before + (other.wide ? 1 : 0)) return;
  if (!covered_elsewhere(in, one)) return;
  os::scoped_lock guard(in.mutex);
  in.table.retire_covered(index::record_page::entry_of(&fresh));
  settle(in);
}

bool engine::still_findable(shard& in, const entry& fresh) noexcept {
  os::scoped_lock guard(in.mutex);
  return fresh.findable();
}

bool engine::covered_elsewhere(const shard& in, const entry& fresh) noexcept {
  bool found = false;
  core::for_each_shard(shards_.map().containing(fresh.covered()), [&](std::size_t number) {
    shard& each = shards_[number];
    if (&each == &in || found) return;
    os::scoped_lock guard(each.mutex);
    found = each.table.covers(fresh);
  });
  return found;
}

result<grant> engine::acquire_slowly(shard& in, const request& what, const range& extent,
                                     overlaps_elsewhere& other) noexcept {
  const deadlines until(options_);
  bool was_replaced = false;
  bool tidied = false;
  bool merging = merges(what);
  lookup_result seen;
  for (;;) {
    if (!spare_entry(in))
      return refused(in, {errc::out_of_resources, native_kind::none, 0, "no memory for another entry"});
    if (in.table.ended()) return refused(in, {errc::closed, native_kind::none, 0, "the cache is shutting down"});
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
      was_replaced = true;
      replace(in, *seen.other_token);
      if (options_.closes == close_policy::immediate) static_cast<void>(close_queued(in, SIZE_MAX));
      continue;
    }
    if (seen.twin != nullptr) {
      if (auto gone = wait_out(in, *seen.twin, until); !gone) return refused(in, gone.error());
      continue;
    }
    if (merging && seen.near && wait_for_overlapping_open(in, what, extent, until)) continue;
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

// Looks in the shard of a miss, after the others.
void engine::look(shard& in, const request& what, const range& extent, const overlaps_elsewhere& other,
                  lookup_result& seen) noexcept {
  if (!what.unshared) in.table.scan(what, extent, seen);
  seen.borrowed = core::without(other.around, what.need | seen.around);
  seen.around = seen.around | other.around;
  seen.beside = seen.beside || other.beside;
}

// A miss does a few of the closes that are due. Returns whether there were any.
bool engine::close_some_due(shard& in) noexcept {
  queue_idle(in);
  if (in.table.first_due() == nullptr) return false;
  static_cast<void>(close_queued(in, closes_per_miss));  // on failure the entry is quarantined, and the sink told
  return true;
}

tl::unexpected<error> engine::refused(shard& in, const error& why) noexcept {
  in.counts.add(counter::failed_acquires);
  return tl::unexpected(why);
}

// Waits for an overlapping open, which is to be merged too. Returns false when there is none, or none that ends in
// time.
bool engine::wait_for_overlapping_open(shard& in, const request& what, const range& extent,
                                       const deadlines& until) noexcept {
  const entry* const opening = in.table.opening_there(what.peer, extent);
  return opening != nullptr && wait_for(in, opening, until.others());
}

// Waits for another thread's open. Returns an empty grant when the result does not suit the request and the caller has
// to look again: the open failed with other rights than the request needs, or succeeded without some of them; or it
// became a bypass, which ends with its last lease, while the request is persistent. Or what made the driver refuse may
// have been closed before this request began.
result<grant> engine::join(shard& in, entry& opening, const request& what, const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.doomed, "only what requests may find is joined");
  opening.own_pins().fetch_add(1);  // from here on the entry cannot be reused, whatever becomes of the open
  const open_waiter self(in.open_waiters, opening);
  while (opening.now() == entry_state::opening) {
    if (wait_for(in, &opening, until.others()) || opening.now() != entry_state::opening) continue;
    opening.own_pins().fetch_sub(1);  // it is still the opener's
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

result<void> engine::wait_out(shard& in, entry& one, const deadlines& until) noexcept {
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

engine::miss_reason engine::reason_of_miss(shard& in, const request& what, const range& extent,
                                           const lookup_result& seen) const noexcept {
  if (seen.around != access_flags::none) return miss_reason::access;
  const auto past = in.table.past_of(what.peer, extent.begin);
  if (past != miss_reason::cold) return past;
  return seen.beside ? miss_reason::extent : miss_reason::cold;
}

void engine::count_miss(shard& in, miss_reason reason) noexcept {
  constexpr auto first = static_cast<std::uint8_t>(counter::misses_cold);
  in.counts.add(static_cast<counter>(first + static_cast<std::uint8_t>(reason)));
}

// Makes sure that `claim` needs no memory. Returns false when there is none.
bool engine::spare_entry(shard& in) noexcept { return in.table.ready() || make_spare_entry(in); }

bool engine::make_spare_entry(shard& in) noexcept {
  if (const auto step = in.hits.wants(); step != 0) grow_hit_table(in, step);
  while (!in.table.ready_but_for_hits()) {
    const bool grown = in.pool.empty() ? grow_pool(in) : grow_index(in);
    if (!grown) return false;
  }
  return true;
}

bool engine::grow_pool(shard& in) noexcept {
  in.mutex.unlock();
  auto more = index::entry_pool::make_chunk(token_offset_ + driver_.token_bytes);
  in.mutex.lock();
  if (!more) return false;
  in.pool.adopt(std::move(more));
  return true;
}

bool engine::grow_index(shard& in) noexcept {
  const auto bytes = in.table.next_index_chunk();
  in.mutex.unlock();
  auto more = index::range_index::make_chunk(bytes);
  in.mutex.lock();
  if (!more) return false;
  in.table.adopt(std::move(more));
  return true;
}

// Grows the hit table. Without memory for that, some hits take the mutex.
void engine::grow_hit_table(shard& in, unsigned step) noexcept {
  in.hits.say_will_grow();
  in.mutex.unlock();
  index::hit_table::memory larger(step);
  in.mutex.lock();
  in.table.grow_hit_table(std::move(larger));
}

}  // namespace pinfold::detail

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
  if (hits_need_the_mutex() || what.persistent || (monitors_ != nullptr && (changed || open_not_hittable() > 0))) {
    os::scoped_lock guard(mutex_);
    if (const auto hit = hit_if_live(what); hit.held != 0) return hit;
  }
  auto extent = checked(what);
  if (extent && !prepare_filter(*extent)) extent = tl::unexpected(no_memory_for_page_counts());
  const bool others = extent && others_could_take(what, *extent);
  os::scoped_lock guard(mutex_);
  if (others) {  // a registration for one lease only, unless the memory was registered with its descriptor
    if (const auto hit = hit_if_live(what); hit.held != 0) return hit;
  }
  counters_.add(counter::acquires);
  if (others) counters_.add(counter::file_backed);
  if (extent) return others ? acquire_slowly(for_one_lease(what), *extent) : acquire_slowly(what, *extent);
  counters_.add(counter::failed_acquires);
  return tl::unexpected(extent.error());
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
grant engine::hit_if_live(const request& what) noexcept {
  if (table_.ended() || what.unshared) return {};
  lookup_result seen;
  table_.scan(what, first_byte(what), seen);
  entry* found = seen.match;
  if (found == nullptr || found->now() == entry_state::opening) return {};
  counters_.add(counter::acquires);
  return hit(*found, what);
}

// Looks under the mutex for entries that hits do not see: `evicting`, not hittable, or not in the hit table.
grant engine::find_any(const request& what) noexcept {
  const auto seen_at_once = driver_.token_bytes > 0
                                ? look_up_any(what.peer, what.wanted, what.token, asked_by::find, 0)
                                : look_up_any(what.wanted.begin, what.wanted.end, what.need, asked_by::find, 0);
  if (seen_at_once.held != 0) return seen_at_once;
  catch_up(what);
  os::scoped_lock guard(mutex_);
  lookup_result seen;
  if (!table_.ended()) table_.scan(what, first_byte(what), seen);
  if (entry* found = seen.match; found != nullptr && found->now() != entry_state::opening) {
    table_.hit_for_find(*found);
    return grant_on(*found->hot(), what);
  }
  counters_.add(counter::find_misses);
  for (; seen.other_token != nullptr; table_.scan(what, first_byte(what), seen))
    replace(*seen.other_token);  // only marks: `find` never calls the driver
  return {};
}

grant engine::hit(entry& found, const request& what) noexcept {
  table_.hit(found, what);
  return grant_on(*found.hot(), what);
}

result<grant> engine::acquire_slowly(const request& what, const range& extent) noexcept {
  const deadlines until(options_);
  bool was_replaced = false;
  bool tidied = false;
  bool merging = merges(what);
  lookup_result seen;
  for (;;) {
    if (!spare_entry()) return refused({errc::out_of_resources, native_kind::none, 0, "no memory for another entry"});
    if (table_.ended()) return refused({errc::closed, native_kind::none, 0, "the cache is shutting down"});
    if (!what.unshared) table_.scan(what, extent, seen);
    if (entry* found = seen.match) {
      if (found->now() != entry_state::opening) return hit(*found, what);
      auto joined = join(*found, what, until);
      if (!joined) return refused(joined.error());
      if (joined->held == 0) continue;
      return joined;
    }
    if (!std::exchange(tidied, true) && close_some_due()) continue;
    if (seen.other_token != nullptr) {
      was_replaced = true;
      replace(*seen.other_token);
      if (options_.closes == close_policy::immediate) static_cast<void>(close_queued(SIZE_MAX));
      continue;
    }
    if (seen.twin != nullptr) {
      if (auto gone = wait_out(*seen.twin, until); !gone) return refused(gone.error());
      continue;
    }
    if (merging && seen.near && wait_for_overlapping_open(what, extent, until)) continue;
    const auto reason = was_replaced ? miss_reason::invalidated : reason_of_miss(what, extent, seen);
    const extent_to_open to = merging ? merged_extent(what, extent, seen) : plain_extent(what, extent, seen);
    auto granted = open(what, to, seen, until);
    if (granted) return count_miss(reason), granted;
    if (!to.merged) return refused(granted.error());
    merging = false;
  }
}

// A miss does a few of the closes that are due. Returns whether there were any.
bool engine::close_some_due() noexcept {
  queue_idle();
  if (table_.first_due() == nullptr) return false;
  static_cast<void>(close_queued(closes_per_miss));  // on failure the entry is quarantined, and the sink told
  return true;
}

tl::unexpected<error> engine::refused(const error& why) noexcept {
  counters_.add(counter::failed_acquires);
  return tl::unexpected(why);
}

// Waits for an overlapping open, which is to be merged too. Returns false when there is none, or none that ends in
// time.
bool engine::wait_for_overlapping_open(const request& what, const range& extent, const deadlines& until) noexcept {
  const entry* const opening = table_.opening_there(what.peer, extent);
  return opening != nullptr && wait_for(opening, until.others());
}

// Waits for another thread's open. Returns an empty grant when the result does not suit the request and the caller has
// to look again: the open failed with other rights than the request needs, or succeeded without some of them; or it
// became a bypass, which ends with its last lease, while the request is persistent. Or what made the driver refuse may
// have been closed before this request began.
result<grant> engine::join(entry& opening, const request& what, const deadlines& until) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.doomed, "only what requests may find is joined");
  opening.own_pins().fetch_add(1);  // from here on the entry cannot be reused, whatever becomes of the open
  const open_waiter self(open_waiters_, opening);
  while (opening.now() == entry_state::opening) {
    if (wait_for(&opening, until.others()) || opening.now() != entry_state::opening) continue;
    opening.own_pins().fetch_sub(1);  // it is still the opener's
    return fail(errc::timed_out, "another thread is still opening this handle");
  }
  const bool made = opening.now() == entry_state::live || opening.now() == entry_state::draining;
  const bool stays = !what.persistent || !opening.bypass;
  const bool suits =
      made ? stays && contains_all(opening.access, what.need) : opening.access == what.need && !opening.merged;
  if (made && suits) {
    table_.count_hit(opening, what);
    return grant_on(*opening.hot(), what);
  }
  static_cast<void>(unpin(opening));  // if a close fails, the entry is quarantined, and the sink told
  if (!suits || self.outdated()) return grant{};
  return tl::unexpected(self.why());
}

result<void> engine::wait_out(entry& one, const deadlines& until) noexcept {
  PINFOLD_ASSERT(!one.findable(), "a twin is hidden");
  switch (one.now()) {
    case entry_state::quarantined: {
      if (open_waiter::waits(open_waiters_, one)) break;
      auto closed = close(one);
      if (closed) return {};
      error why = closed.error();
      why.code = errc::in_use_conflict;
      return tl::unexpected(why);
    }
    case entry_state::draining:
      if (one.in == index::list_id::queued || one.pins() == 0) {
        static_cast<void>(close(one));  // if it fails, the next look finds it in quarantine
        return {};
      }
      if (wait_for(&one, end_of_conflict(one, until))) return {};
      return fail(errc::in_use_conflict, "leases still hold an invalidated registration of this handle");
    default: break;
  }
  if (wait_for(&one, until.others())) return {};
  return fail(errc::timed_out, "another thread is still closing this handle");
}

engine::miss_reason engine::reason_of_miss(const request& what, const range& extent,
                                           const lookup_result& seen) const noexcept {
  if (seen.around != access_flags::none) return miss_reason::access;
  const auto past = table_.past_of(what.peer, extent.begin);
  if (past != miss_reason::cold) return past;
  return seen.beside ? miss_reason::extent : miss_reason::cold;
}

void engine::count_miss(miss_reason reason) noexcept {
  constexpr auto first = static_cast<std::uint8_t>(counter::misses_cold);
  counters_.add(static_cast<counter>(first + static_cast<std::uint8_t>(reason)));
}

// Makes sure that `claim` needs no memory. Returns false when there is none.
bool engine::spare_entry() noexcept { return table_.ready() || make_spare_entry(); }

bool engine::make_spare_entry() noexcept {
  if (const auto step = hits_.wants(); step != 0) grow_hit_table(step);
  while (!table_.ready_but_for_hits()) {
    const bool grown = pool_.empty() ? grow_pool() : grow_index();
    if (!grown) return false;
  }
  return true;
}

bool engine::grow_pool() noexcept {
  mutex_.unlock();
  auto more = index::entry_pool::make_chunk(token_offset_ + driver_.token_bytes);
  mutex_.lock();
  if (!more) return false;
  pool_.adopt(std::move(more));
  return true;
}

bool engine::grow_index() noexcept {
  const auto bytes = table_.next_index_chunk();
  mutex_.unlock();
  auto more = index::range_index::make_chunk(bytes);
  mutex_.lock();
  if (!more) return false;
  table_.adopt(std::move(more));
  return true;
}

// Grows the hit table. Without memory for that, some hits take the mutex.
void engine::grow_hit_table(unsigned step) noexcept {
  mutex_.unlock();
  index::hit_table::memory larger(step);
  mutex_.lock();
  hits_.adopt(std::move(larger), pool_);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Opening one entry: reserve, call the driver, correct, publish; or take everything back.
#include "core/engine_open.hpp"
#include "core/pin_now.hpp"
#include "os/backing.hpp"

namespace pinfold::detail {

namespace {

// How often an open is repeated because its memory was invalidated meanwhile, before the entry is handed out hidden.
constexpr int most_late_opens = 3;

// Memory merged in may already be going away (events can come before the memory goes), so do not retry the union.
// Internal: the request is then opened alone.
constexpr error merged_memory_goes{errc::in_use_conflict, native_kind::none, 0,
                                   "memory that the request was merged with is going away"};

constexpr error memory_withdrawn{errc::invalid_range, native_kind::none, 0, "the memory was invalidated meanwhile"};
constexpr error no_free_room{errc::over_budget, native_kind::none, 0, "no room is free"};

bool withdrawn(const request& what) noexcept {
  return what.meanwhile != nullptr && what.meanwhile->withdrawn.load(std::memory_order_relaxed);
}

}  // namespace

result<grant> engine_opening::open(shard& in, const request& what, const extent_to_open& to, lookup_result& seen,
                                   const deadlines& until) noexcept {
  if (withdrawn(what)) [[unlikely]]
    return tl::unexpected(memory_withdrawn);
  entry& fresh = claim(in, what, to, seen).one;
  if (to.borrowed != access_flags::none) [[unlikely]]
    check_borrowed(in, fresh, what, to.borrowed);
  return open_claimed(in, fresh, what, until);
}

// Takes room for the entry, and calls the driver.
result<grant> engine_opening::open_claimed(shard& in, entry& fresh, const request& what,
                                           const deadlines& until) noexcept {
  const auto bytes = fresh.covered().size();
  PINFOLD_ASSERT(!fresh.counted && fresh.bytes == 0, "a new entry has taken no room");
  if (fresh.bypass || !in.table.take_room(fresh, bytes, 1)) {
    const auto room =
        what.free_room_only && !fresh.bypass ? take_free_room(in, fresh, bytes) : reserve(in, fresh, bytes, 1, until);
    if (!room) return tl::unexpected(abandon(in, fresh, room.error(), what.free_room_only));  // joiners look again
  }
  if (in.table.ended()) return tl::unexpected(abandon(in, fresh, cache_ended));  // since the claim
  const auto before = driver_.closes_now();
  auto made = call_open(in, fresh, *fresh.hot(), what);
  return finish(in, fresh, what, made, before, until);
}

bool engine_opening::is_of_a_file(const request& what, const range& extent) const noexcept {
  const auto behind = backing_of(extent, what.file);
  return behind > backing::program || (behind == backing::program && !options_.program_data);
}

// Takes room for a request that must not evict.
result<void> engine_opening::take_free_room(shard& in, entry& fresh, std::size_t bytes) noexcept {
  for (bool gathered = budget_.gathered(); !in.table.take_room(fresh, bytes, 1); gathered = budget_.gathered()) {
    if (gathered) return tl::unexpected(no_free_room);
    gather_room(in);
  }
  return {};
}

// Removes access that only entries in other shards had when the request looked there, unless they still have it: the
// memory may have been replaced since. If it is replaced from now on, the claimed entry is doomed.
void engine_opening::check_borrowed(shard& in, entry& fresh, const request& what, access_flags borrowed) noexcept {
  auto still = access_flags::none;
  {
    const os::scoped_unlock free(in.mutex);
    for (shard& other : shards_.others(shards_.map().containing(what.wanted), in)) {
      lookup_result seen;
      os::scoped_lock guard(other.mutex);
      other.table.scan(what, what.wanted, seen);
      still = still | seen.around;
    }
  }
  fresh.access = core::without(fresh.access, core::without(borrowed, still));
}

// Handles the driver's answer: publishes the entry, asks the driver again, or gives up.
result<grant> engine_opening::finish(shard& in, entry& fresh, const request& what, result<opened>& made,
                                     closes_known before, const deadlines& until) noexcept {
  record& hot = *fresh.hot();
  for (int late = 0;;) {
    PINFOLD_ASSERT(fresh.now() == entry_state::opening && !fresh.in_driver, "only the opener ends an open");
    if (made) {
      if (made->bytes != fresh.bytes || !(made->covered == hot.covered())) {
        if (auto fits = accept(in, fresh, *made, until); !fits)
          return tl::unexpected(take_back(in, fresh, *made, fits.error()));
      }
      if (!in.pending.empty()) [[unlikely]]
        doom_if_gone(in, fresh);
      if (hot.is(record::stale) && driver_.wants_invalidated()) [[unlikely]]
        driver_.invalidated(made->object);
      if (!hot.is(record::stale) || late == most_late_opens || !opened_too_late(in, fresh, *made)) {
        const pin held = core::pin_now(ledger::of_this_thread(), &hot);
        publish(in, fresh, hot, *made);
        return grant_on(held, hot, what);
      }
      if (fresh.merged) return tl::unexpected(abandon(in, fresh, merged_memory_goes));
      if (withdrawn(what)) [[unlikely]]
        return tl::unexpected(abandon(in, fresh, memory_withdrawn, true));  // requests that joined look again
      ++late;
    } else {
      in.counts.add(counter::failed_opens);
      if (auto again = after_refusal(in, fresh, made.error(), what, before, until); !again)
        return tl::unexpected(abandon(in, fresh, again.error(), what.free_room_only || driver_.closed_since(before)));
    }
    if (in.table.ended()) return tl::unexpected(abandon(in, fresh, cache_ended));
    before = driver_.closes_now(before);
    made = call_open(in, fresh, hot, what);
  }
}

// If the range was invalidated since the driver was asked, closes the registration and returns true: the caller asks
// the driver again. Without a token, only the time tells which memory was opened: it may be the memory that is gone.
bool engine_opening::opened_too_late(shard& in, entry& opening, const opened& made) noexcept {
  if (driver_.imports()) return false;
  if (!close_unpublished(in, opening, made))
    return false;  // handed out as it is, hidden, and closed by its last release
  in.table.undoom(opening, in.pending);
  return true;
}

// Handles a refusal by the driver. Success means that the caller asks the driver again.
result<void> engine_opening::after_refusal(shard& in, entry& opening, const error& refused, const request& what,
                                           closes_known& before, const deadlines& until) noexcept {
  if (refused.code == errc::already_mapped) return clear_conflicts(in, opening, refused, before, until);
  if (refused.code == errc::out_of_resources && what.free_room_only)  // evicts nothing for room in the driver either
    return driver_.closed_since(before) ? result<void>{} : tl::unexpected(refused);
  if (refused.code == errc::out_of_resources) return free_resources(in, refused, before, until);
  if (opening.access == what.need) return tl::unexpected(refused);
  opening.access = what.need;  // the driver may refuse only the access added from other entries
  return {};
}

// Corrects index and reservation to the range that was really opened (R12).
result<void> engine_opening::accept(shard& in, entry& opening, const opened& made, const deadlines& until) noexcept {
  PINFOLD_ASSERT(!opening.in_driver, "the driver has answered");
  const bool whole = made.covered.contains(opening.covered()) && made.bytes >= made.covered.size();
  if (!made.covered.empty()) in.table.cover(opening, made.covered);
  if (!whole) return fail(errc::driver_error, "the driver opened less memory than the handle describes");
  if (made.bytes < opening.bytes) shrink(in, opening, made.bytes);
  return made.bytes > opening.bytes ? reserve(in, opening, made.bytes - opening.bytes, 0, until) : result<void>{};
}

void engine_opening::shrink(shard& in, entry& opening, std::size_t bytes) noexcept {
  in.table.shrink(opening, bytes);
  changes_.notify();
}

// Ends a failed open: tells the waiting threads why. The last thread that needs the entry recycles it.
error engine_opening::abandon(shard& in, entry& opening, const error& why, bool outdated) noexcept {
  open_waiter::tell(in.open_waiters, opening, why, outdated);
  in.table.fail(opening);
  in.waiting.notify(&opening);
  changes_.notify();
  static_cast<void>(unpinned(in, opening, defers_closes()));
  return why;
}

// Closes an open registration that must not stay, or quarantines the entry (R41). A quarantined entry counts with the
// bytes that are open, even if the budget has no room for them.
error engine_opening::take_back(shard& in, entry& opening, const opened& made, const error& why) noexcept {
  in.counts.add(counter::opens);
  in.table.write_record(*opening.hot(), made);
  if (close_unpublished(in, opening, made)) {
    in.table.mark_disturbed(opening);
    return abandon(in, opening, why);
  }
  if (made.bytes < opening.bytes) shrink(in, opening, made.bytes);
  if (made.bytes > opening.bytes) in.table.charge(opening, made.bytes - opening.bytes);
  open_waiter::tell(in.open_waiters, opening, why, false);
  in.table.quarantine_opened(opening);
  in.waiting.notify(&opening);
  return why;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Opening one entry: reserve, call the driver, correct, publish; or take everything back.
#include "core/engine.hpp"
#include "core/open_watch.hpp"

namespace pinfold::detail {

namespace {

// How often an open is repeated because its memory was invalidated meanwhile, before the entry is handed out hidden.
constexpr int most_late_opens = 3;

// What was added to a merged request may be going at this moment, because events can come before the memory goes. So
// the driver is not asked again for all of it. Not for callers, whose request is opened alone.
constexpr error merged_memory_goes{errc::in_use_conflict, native_kind::none, 0,
                                   "memory that the request was merged with is going away"};

}  // namespace

// Flattened: the calls between its parts here and in headers would take 72 instructions (scripts/hit-cost).
[[gnu::flatten]] result<grant> engine::open(const request& what, const extent_to_open& to, lookup_result& seen,
                                            const deadlines& until) noexcept {
  entry& fresh = claim(what, to, seen);
  const auto bytes = fresh.covered().size();
  PINFOLD_ASSERT(!fresh.counted && fresh.bytes == 0, "a new entry has taken no room");
  if (fresh.bypass || !table_.take_room(fresh, bytes, 1)) {
    if (auto room = reserve(fresh, bytes, 1, until); !room) return tl::unexpected(abandon(fresh, room.error()));
  }
  const auto closes_before = table_.closes_done();
  auto made = call_open(fresh, what.argument);
  return finish(fresh, what, made, closes_before, until);
}

// Claims an entry, and wakes the reaper for the first one: from now on there is an entry that an event or time could
// affect.
entry& engine::claim(const request& what, const extent_to_open& to, lookup_result& seen) noexcept {
  entry& fresh = table_.claim(what, to, seen, pending_);
  if (table_.size() == 1) wake_reaper();
  return fresh;
}

// Handles the driver's answer: publishes the entry, asks the driver again, or gives up.
result<grant> engine::finish(entry& fresh, const request& what, result<opened>& made, std::uint64_t closes_before,
                             const deadlines& until) noexcept {
  record& hot = *fresh.hot();
  for (int late = 0;;) {
    PINFOLD_ASSERT(fresh.now() == entry_state::opening && !fresh.in_driver, "only the opener ends an open");
    if (made) {
      if (made->bytes != fresh.bytes || !(made->covered == hot.covered())) {
        if (auto fits = accept(fresh, *made, until); !fits)
          return tl::unexpected(take_back(fresh, *made, fits.error()));
      }
      doom_if_gone(fresh);
      if (!hot.is(record::stale) || late == most_late_opens || !opened_too_late(fresh, *made)) {
        const pin held = pin_for_this_thread(hot);
        publish(fresh, hot, *made);
        return grant_on(held, hot, what);
      }
      if (fresh.merged) return tl::unexpected(abandon(fresh, merged_memory_goes));
      ++late;
    } else {
      counters_.add(counter::failed_opens);
      if (auto again = after_refusal(fresh, made.error(), what, closes_before, until); !again)
        return tl::unexpected(abandon(fresh, again.error(), table_.closes_done() != closes_before));
    }
    closes_before = table_.closes_done();
    made = call_open(fresh, what.argument);
  }
}

// Closes a registration whose range was invalidated since the driver was asked, and returns true: the caller asks the
// driver again. Without a token, nothing but the time tells what was opened: it may be the memory that is gone.
bool engine::opened_too_late(entry& opening, const opened& made) noexcept {
  if (driver_.token_bytes > 0) return false;
  if (!close_unpublished(opening, made)) return false;  // handed out as it is, hidden, and closed by its last release
  table_.undoom(opening, pending_);
  return true;
}

// Handles a refusal by the driver. Success means that the caller asks the driver again.
result<void> engine::after_refusal(entry& opening, const error& refused, const request& what,
                                   std::uint64_t closes_before, const deadlines& until) noexcept {
  if (refused.code == errc::already_mapped) return clear_conflicts(opening, refused, until);
  if (refused.code == errc::out_of_resources) return free_resources(refused, closes_before, until);
  if (opening.access == what.need) return tl::unexpected(refused);
  opening.access = what.need;  // the driver may refuse only the rights added from other entries
  return {};
}

result<opened> engine::call_open(entry& opening, void* argument) noexcept {
  table_.enter_driver(opening);
  const record& hot = *opening.hot();
  const auto* token = reinterpret_cast<const std::byte*>(&hot) + token_offset_;
  const open_request asked{driver_.token_bytes > 0 ? imported_part_of(hot).peer : peer_id{}, hot.covered(), token,
                           opening.access, argument};
  mutex_.unlock();
  const bool seen = monitors_watch(asked.extent);
  const auto start = core::open_watch::now(options_.trace_requests);
  auto made = [&] {
    const auto turn = driver_turn();
    return driver_.open(driver_.self, asked);
  }();
  if (options_.trace_requests) core::open_watch::add_since(start);
  if (audit_ && made) audit_->note(opening.hot(), made->covered);
  mutex_.lock();
  table_.leave_driver(opening);
  if (!seen) table_.make_unshared(opening);
  return made;
}

// Corrects index and reservation to what was really opened (R12).
result<void> engine::accept(entry& opening, const opened& made, const deadlines& until) noexcept {
  PINFOLD_ASSERT(!opening.in_driver, "the driver has answered");
  const bool whole = made.covered.contains(opening.covered()) && made.bytes >= made.covered.size();
  if (!made.covered.empty()) table_.cover(opening, made.covered);
  if (!whole) return fail(errc::driver_error, "the driver opened less memory than the handle describes");
  if (made.bytes < opening.bytes) shrink(opening, made.bytes);
  return made.bytes > opening.bytes ? reserve(opening, made.bytes - opening.bytes, 0, until) : result<void>{};
}

void engine::publish(entry& opening, record& hot, const opened& made) noexcept {
  table_.publish(opening, hot, made);
  settle();
  PINFOLD_ASSERT(opening.now() == entry_state::live || opening.now() == entry_state::draining, "it is open");
  waiting_.notify(&opening);
}

void engine::shrink(entry& opening, std::size_t bytes) noexcept {
  table_.shrink(opening, bytes);
  waiting_.notify(this);
}

// Ends a failed open: tells the waiting threads why. The last thread that needs the entry recycles it.
error engine::abandon(entry& opening, const error& why, bool outdated) noexcept {
  open_waiter::tell(open_waiters_, opening, why, outdated);
  table_.fail(opening);
  waiting_.notify(&opening);
  waiting_.notify(this);
  static_cast<void>(unpinned(opening, defers_closes()));
  return why;
}

// Closes what the driver opened and must not stay, or quarantines the entry (R41). A quarantined entry counts with what
// is open, even where the budget has no room for it.
error engine::take_back(entry& opening, const opened& made, const error& why) noexcept {
  counters_.add(counter::opens);
  table_.write_record(*opening.hot(), made);
  if (close_unpublished(opening, made)) {
    table_.mark_disturbed(opening);
    return abandon(opening, why);
  }
  if (made.bytes < opening.bytes) shrink(opening, made.bytes);
  if (made.bytes > opening.bytes) table_.charge(opening, made.bytes - opening.bytes);
  open_waiter::tell(open_waiters_, opening, why, false);
  table_.quarantine_opened(opening);
  waiting_.notify(&opening);
  return why;
}

}  // namespace pinfold::detail

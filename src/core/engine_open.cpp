// SPDX-License-Identifier: BSD-3-Clause
// Opening one entry: reserve, call the driver, correct, publish; or take everything back.
#include "core/engine.hpp"
#include "core/open_watch.hpp"
#include "core/ticks.hpp"

#include <cstring>
#include <unistd.h>

namespace pinfold::detail {

namespace {

std::int32_t this_thread() noexcept {
  thread_local const auto id = static_cast<std::int32_t>(::gettid());
  return id;
}

// How often an open is repeated because its memory was invalidated meanwhile, before the entry is handed out hidden.
constexpr int most_late_opens = 3;

// What was added to a merged request may be going at this moment, because events can come before the memory goes. So
// the driver is not asked again for all of it. Not for callers, whose request is opened alone.
constexpr error merged_memory_goes{errc::in_use_conflict, native_kind::none, 0,
                                   "memory that the request was merged with is going away"};

}  // namespace

// Takes room in the budget: the fast path of `reserve`, which looks at nothing else.
bool engine::take_room(entry& opening, std::size_t bytes) noexcept {
  if (opening.bypass || !budget_.take(bytes, 1)) return false;
  opening.bytes = bytes;
  opening.counted = true;
  return true;
}

// Flattened: its parts are short, and the calls between them were a tenth of a miss.
[[gnu::flatten]] result<grant> engine::open(const request& what, const extent_to_open& to, lookup_result& seen,
                                            const deadlines& until) noexcept {
  entry& fresh = claim(what, to, seen);
  const auto bytes = fresh.covered().size();
  if (!take_room(fresh, bytes)) {
    if (auto room = reserve(fresh, bytes, 1, until); !room) return tl::unexpected(abandon(fresh, room.error()));
  }
  const auto closes_before = closes_done_;
  auto made = call_open(fresh, what.argument);
  return finish(fresh, what, made, closes_before, until);
}

// Handles the driver's answer: publishes the entry, asks the driver again, or gives up.
result<grant> engine::finish(entry& fresh, const request& what, result<opened>& made, std::uint64_t closes_before,
                             const deadlines& until) noexcept {
  record& hot = *fresh.hot();
  for (int late = 0;;) {
    if (made) {
      if (made->bytes != fresh.bytes || !(made->covered == hot.covered())) {
        if (auto fits = accept(fresh, *made, until); !fits)
          return tl::unexpected(take_back(fresh, *made, fits.error()));
      }
      doom_if_gone(fresh);
      if (!hot.is(record::stale) || late == most_late_opens || !opened_too_late(fresh, *made)) {
        publish(fresh, hot, *made);
        return grant_on(hot, what);
      }
      if (fresh.merged) return tl::unexpected(abandon(fresh, merged_memory_goes));
      ++late;
    } else {
      counters_.add(counter::failed_opens);
      if (auto again = after_refusal(fresh, made.error(), what, closes_before, until); !again)
        return tl::unexpected(abandon(fresh, again.error(), closes_done_ != closes_before));
    }
    closes_before = closes_done_;
    made = call_open(fresh, what.argument);
  }
}

// Makes an entry for the request and indexes it, before the driver is asked: an invalidation meanwhile must find it.
entry& engine::claim(const request& what, const extent_to_open& to, lookup_result& seen) noexcept {
  entry& fresh = *pool_.take();
  record& hot = *fresh.hot();
  const range covered = to.covered;
  hot.begin.store(covered.begin, std::memory_order_relaxed);
  hot.end.store(covered.end, std::memory_order_relaxed);
  fresh.access = to.access;
  fresh.merged = to.merged;
  fresh.set_owner(this_thread());
  if (driver_.token_bytes > 0) {
    auto* bytes = reinterpret_cast<std::byte*>(&hot);
    const imported_part beside{nullptr, what.peer};
    std::memcpy(bytes + sizeof(record), &beside, sizeof beside);
    std::memcpy(bytes + token_offset_, what.token, driver_.token_bytes);
  }
  fresh.become(entry_state::opening);
  fresh.own_pins().fetch_add(1);  // for the opener. Added, not set: a hit that came too late may be taking its pin back
  if (what.persistent || what.unshared || what.unbudgeted) claim_specially(fresh, what);
  if (seen.alone && to.as_scanned) {
    index_.insert(&fresh, driver_.token_bytes > 0 ? what.peer : peer_id{}, covered, seen.place);
  } else {
    index_.insert(&fresh);
  }
  if (watched_ != nullptr) watched_->add(covered);
  if (index_.size() == 1) wake_reaper();  // from now on there is an entry that an event or time could affect
  pending_.stamp(fresh);
  if (seen.near) note_overlap(fresh);
  ++openings_;
  return fresh;
}

void engine::claim_specially(entry& fresh, const request& what) noexcept {
  fresh.persistent = what.persistent;
  fresh.doomed = fresh.unshared = what.unshared;
  fresh.bypass = what.unbudgeted;
  if (what.unbudgeted) counters_.add(counter::bypasses);
  if (what.unshared && !what.unbudgeted) counters_.add(counter::unmonitored);
}

// Marks the entries that overlap the new one, itself included: the one that is published last looks for those that it
// supersedes.
void engine::note_overlap(entry& fresh) noexcept {
  index_.find_overlap(fresh.peer(), fresh.covered(), [](entry& one) {
    one.near = true;
    return false;
  });
}

// Closes a registration whose range was invalidated since the driver was asked, and returns true: the caller asks the
// driver again. Without a token, nothing but the time tells what was opened: it may be the memory that is gone.
bool engine::opened_too_late(entry& opening, const opened& made) noexcept {
  if (driver_.token_bytes > 0) return false;
  if (!close_unpublished(opening, made)) return false;  // handed out as it is, hidden, and closed by its last release
  counters_.add(counter::opens);
  opening.hot()->clear(record::stale);
  opening.doomed = opening.unshared;
  pending_.stamp(opening);
  note_overlap(opening);
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
  opening.disturbed = false;
  opening.in_driver = true;
  ++asked_now_;
  const record& hot = *opening.hot();
  const auto* token = reinterpret_cast<const std::byte*>(&hot) + token_offset_;
  const open_request asked{driver_.token_bytes > 0 ? imported_part_of(hot).peer : peer_id{}, hot.covered(), token,
                           opening.access, argument};
  mutex_.unlock();
  const bool seen = see_what_happens_to(asked.extent);
  const auto start = core::open_watch::now(options_.trace_requests);
  auto made = [&] {
    const auto turn = driver_turn();
    return driver_.open(driver_.self, asked);
  }();
  if (options_.trace_requests) core::open_watch::add_since(start);
  if (audit_ && made) audit_->note(opening.hot(), made->covered);
  mutex_.lock();
  if (!seen) keep_to_itself(opening);
  --asked_now_;
  opening.in_driver = false;
  return made;
}

// Corrects index and reservation to what was really opened (R12).
result<void> engine::accept(entry& opening, const opened& made, const deadlines& until) noexcept {
  const bool whole = made.covered.contains(opening.covered()) && made.bytes >= made.covered.size();
  if (!made.covered.empty()) index_again(opening, made.covered);
  if (!whole) return fail(errc::driver_error, "the driver opened less memory than the handle describes");
  if (made.bytes < opening.bytes) shrink(opening, made.bytes);
  return made.bytes > opening.bytes ? reserve(opening, made.bytes - opening.bytes, 0, until) : result<void>{};
}

// Indexes the entry anew with the range that the driver opened, so that conflicts are found there. Only imports are
// opened with another range than asked for.
void engine::index_again(entry& opening, const range& covered) noexcept {
  if (opening.covered() == covered) return;
  index_.erase(&opening);
  opening.cover(covered);
  index_.insert(&opening);
}

void engine::publish(entry& opening, record& hot, const opened& made) noexcept {
  opening.opened_at = core::ticks();
  --openings_;
  write_record(hot, made);
  counters_.add(counter::opens);
  history_.forget(opening.peer(), made.covered.begin);
  waiting_.notify(&opening);
  if (opening.doomed) {
    opening.become(entry_state::draining);
    draining_pinned_.push_back(&opening);
    return;
  }
  opening.become(entry_state::live);
  if (reusable(opening)) reusable_.push_back(&opening);
  allow_hits(opening, hot);
  if (opening.near && driver_.token_bytes == 0) supersede(opening);
}

// Writes all that leases and hits read. It stays constant as long as any thread may read it.
void engine::write_record(record& hot, const opened& made) const noexcept {
  auto* bytes = reinterpret_cast<std::byte*>(&hot);
  if (driver_.token_bytes > 0) {
    reinterpret_cast<imported_part*>(bytes + sizeof(record))->data = made.data;
    std::memcpy(bytes + imported_object_offset, &made.object, driver_.object_bytes);
  } else if (driver_.object_bytes == sizeof(std::uint64_t)) {  // the usual size: one instruction
    std::memcpy(bytes + local_object_offset, &made.object, sizeof(std::uint64_t));
  } else {
    std::memcpy(bytes + local_object_offset, &made.object, driver_.object_bytes);
  }
}

registration engine::object_of(const entry& one) const noexcept {
  const auto offset = driver_.token_bytes > 0 ? imported_object_offset : local_object_offset;
  registration copy;
  std::memcpy(&copy, reinterpret_cast<const std::byte*>(one.hot()) + offset, driver_.object_bytes);
  return copy;
}

// Retires entries that the new entry covers in range and rights. A lease on one keeps it open until release (R23).
void engine::supersede(entry& by) noexcept {
  index_.find_overlap(by.peer(), by.covered(), [&](entry& one) {
    mutex_is_held();
    const bool lesser = &one != &by && one.findable() && one.now() != entry_state::opening && !one.persistent &&
                        by.covered().contains(one.covered()) && contains_all(by.access, one.access);
    if (lesser) retire(one);
    return false;
  });
  sort_retired();
}

void engine::leave_index(entry& gone) noexcept {
  index_.erase(&gone);
  if (watched_ != nullptr) watched_->remove(gone.covered());
}

// Ends a failed open: tells the waiting threads why, the last of which recycles the entry.
error engine::abandon(entry& opening, const error& why, bool outdated) noexcept {
  leave_index(opening);
  --openings_;
  give_room_back(opening);
  open_waiter::tell(open_waiters_, opening, why, outdated);
  opening.become(entry_state::failed);
  waiting_.notify(&opening);
  static_cast<void>(unpin(opening));
  return why;
}

// Closes what the driver opened and nothing refers to yet. Returns false when the driver refuses, after telling the
// sink.
bool engine::close_unpublished(entry& opening, const opened& made) noexcept {
  ++closes_in_flight_;
  event failed = about(opening, event_kind::close_failed, severity::failure);
  mutex_.unlock();
  const auto closed = call_close(made.object);
  if (!closed) {
    failed.cause = &closed.error();
    tell(failed);
  }
  mutex_.lock();
  --closes_in_flight_;
  waiting_.notify(this);
  counters_.add(closed ? counter::closes : counter::failed_closes);
  if (closed) ++closes_done_;
  return closed.has_value();
}

// Closes what the driver opened and must not stay, or quarantines the entry (R41). A quarantined entry counts with what
// is open, even where the budget has no room for it.
error engine::take_back(entry& opening, const opened& made, const error& why) noexcept {
  counters_.add(counter::opens);
  write_record(*opening.hot(), made);
  if (close_unpublished(opening, made)) {
    tell_overlapping_openings(opening);
    return abandon(opening, why);
  }
  if (made.bytes < opening.bytes) shrink(opening, made.bytes);
  if (made.bytes > opening.bytes) charge(opening, made.bytes - opening.bytes);
  open_waiter::tell(open_waiters_, opening, why, false);
  --openings_;
  quarantine(opening);
  opening.own_pins().fetch_sub(1);
  return why;
}

}  // namespace pinfold::detail

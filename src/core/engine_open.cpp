// SPDX-License-Identifier: BSD-3-Clause
// Opening one entry: reserve, call the driver, correct, publish; or take everything back.
#include "core/engine.hpp"

#include <cstring>
#include <unistd.h>

namespace pinfold::detail {

namespace {

std::int32_t this_thread() noexcept {
  thread_local const auto id = static_cast<std::int32_t>(::gettid());
  return id;
}

}  // namespace

result<grant> engine::open(const request& what, const range& allocation, const patience& until) noexcept {
  entry& fresh = *pool_.take();
  fresh.peer = what.peer;
  fresh.covered = allocation;
  fresh.owner_thread = this_thread();
  std::memcpy(fresh.token(), what.token, driver_.token_bytes);
  fresh.become(entry_state::opening);
  fresh.pins = 1;
  lookup_.insert(&fresh);  // before the driver is asked: an invalidation meanwhile must find it

  if (auto room = reserve(fresh, allocation.size(), 1, until); !room)
    return tl::unexpected(abandon(fresh, room.error()));
  for (;;) {
    const auto closes_before = closes_done_;
    const auto made = call_open(fresh);
    if (made) {
      if (auto fits = accept(fresh, *made, until); !fits) return tl::unexpected(take_back(fresh, *made, fits.error()));
      publish(fresh, *made);
      return grant_on(fresh, what);
    }
    counters_.add(counter::failed_opens);
    const error& refused = made.error();
    result<void> again = tl::unexpected(refused);
    if (refused.code == errc::already_mapped) again = clear_conflicts(fresh, refused, until);
    if (refused.code == errc::out_of_resources) again = free_resources(refused, closes_before, until);
    if (!again) return tl::unexpected(abandon(fresh, again.error()));
  }
}

result<opened> engine::call_open(entry& opening) noexcept {
  opening.disturbed = false;
  opening.in_driver = true;
  mutex_.unlock();
  auto made = driver_.open(driver_.self, opening.peer, opening.token());
  mutex_.lock();
  opening.in_driver = false;
  return made;
}

// Corrects the reservation to what was really opened (R12).
result<void> engine::accept(entry& opening, const opened& made, const patience& until) noexcept {
  if (!made.covered.contains(opening.covered) || made.bytes < made.covered.size())
    return fail(errc::driver_error, "the driver opened less than the handle stands for");
  if (made.bytes < opening.bytes) shrink(opening, made.bytes);
  return made.bytes > opening.bytes ? reserve(opening, made.bytes - opening.bytes, 0, until) : result<void>{};
}

void engine::publish(entry& opening, const opened& made) noexcept {
  opening.object = made.object;
  opening.data = made.data;
  opening.opened_at = std::chrono::steady_clock::now();
  if (!(opening.covered == made.covered)) {
    auto& index = opening.doomed ? hidden_ : lookup_;
    index.erase(&opening);
    opening.covered = made.covered;
    index.insert(&opening);
  }
  counters_.add(counter::opens);
  history_.forget(opening.peer, opening.covered.begin);
  opening.become(opening.doomed ? entry_state::draining : entry_state::live);
  waiting_.notify(&opening);
}

// The open came to nothing: everybody who waits for it is told why, and the last of them recycles the entry.
error engine::abandon(entry& opening, const error& why) noexcept {
  (opening.doomed ? hidden_ : lookup_).erase(&opening);
  give_room_back(opening);
  opening.failure = why;
  opening.become(entry_state::failed);
  waiting_.notify(&opening);
  static_cast<void>(unpin(opening));
  return why;
}

// The driver opened it, but it must not stay: close it, or owe the close (R41).
error engine::take_back(entry& opening, const opened& made, const error& why) noexcept {
  counters_.add(counter::opens);
  opening.object = made.object;
  ++closes_in_flight_;
  const event failed = about(opening, event_kind::close_failed, severity::failure);
  mutex_.unlock();
  const auto closed = driver_.close(driver_.self, made.object);
  if (!closed) {
    event told = failed;
    told.cause = &closed.error();
    tell(told);
  }
  mutex_.lock();
  --closes_in_flight_;
  if (closed) {
    counters_.add(counter::closes);
    ++closes_done_;
    tell_overlapping_openings(opening);
    return abandon(opening, why);
  }
  counters_.add(counter::failed_closes);
  opening.failure = why;
  if (!opening.doomed) {
    lookup_.erase(&opening);
    hidden_.insert(&opening);
  }
  quarantine(opening);
  --opening.pins;
  return why;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// To `closing`, and from there to `free` or to `quarantined`. Also closes all entries at the end of the cache.
#include "core/transition.hpp"

#include <cstring>

namespace pinfold::core {

using index::list_id;

void entry_table::hold(entry& pinned) noexcept {
  held_.push_back(&pinned);
  if (next_apart_ == nullptr && ignores_hidden()) next_apart_ = &pinned;
}

void entry_table::stop_holding(entry& held) noexcept {
  if (next_apart_ == &held) next_apart_ = held.next.get();
  held_.remove(&held);
}

void entry_table::queue(entry& draining) noexcept {
  PINFOLD_ASSERT(draining.now() == entry_state::draining, "only a hidden entry waits for its close");
  if (draining.in == list_id::held) stop_holding(draining);
  queued_.push_back(&draining);
  parts_.counts.add(counter::closes_due);
}

std::size_t entry_table::queue_released() noexcept {
  const auto due = queued_.size();
  for (entry *one = held_.front(), *next = nullptr; one != nullptr; one = next) {
    next = one->next.get();
    const transition of(*this, *one);
    if (one->pins() > 0) {
      note_pinned(*one);
    } else {
      queue(*one);
    }
  }
  return queued_.size() - due;
}

// Takes a closable entry out of its list and out of the hit table.
void entry_table::take_out(entry& closable) noexcept {
  switch (closable.in) {
    case list_id::none: break;  // not kept, or persistent
    case list_id::reusable:
    case list_id::leased: leave_ring(closable); break;
    case list_id::evicting: evicting_.remove(&closable); break;
    case list_id::held: stop_holding(closable); break;
    case list_id::queued:
      queued_.remove(&closable);
      parts_.counts.subtract(counter::closes_due);
      break;
    case list_id::quarantined:
      quarantined_.remove(&closable);
      parts_.counts.subtract(counter::quarantined);
      break;
    default: PINFOLD_INVARIANT(false, "an unsettled entry is not closed");
  }
  leave_hit_table(closable);
}

registration entry_table::object_of(const entry& one) const noexcept {
  PINFOLD_ASSERT(
      one.now() != entry_state::free && one.now() != entry_state::failed && one.now() != entry_state::opening,
      "only what is open has an object");
  registration copy;
  std::memcpy(&copy, reinterpret_cast<const std::byte*>(one.hot()) + object_offset_, object_bytes_);
  return copy;
}

registration entry_table::begin_close(entry& closable) noexcept {
  const transition of(*this, closable);
  PINFOLD_INVARIANT(!closable.hot()->is(record::hittable), "a hittable entry is not closed");
  PINFOLD_ASSERT(settled(), "pins were counted after a barrier");
  take_out(closable);
  closable.become(entry_state::closing);
  ++closes_in_flight_;
  return object_of(closable);
}

void entry_table::leave_index(entry& gone) noexcept {
  PINFOLD_ASSERT(!gone.hot()->is(record::listed), "an entry leaves the hit table before the index");
  (gone.apart ? held_index_ : index_).erase(&gone);
  gone.apart = false;
  --size_;
  if (parts_.registered != nullptr) parts_.registered->remove(gone.covered());
}

void entry_table::finish_close(entry& closing) noexcept {
  const transition of(*this, closing);
  PINFOLD_ASSERT(closing.now() == entry_state::closing && closes_in_flight_ > 0, "one thread closes an entry");
  parts_.counts.add(counter::closes);
  leave_index(closing);
  give_room_back(closing);
  mark_disturbed(closing);
  closing.become(entry_state::free);
  parts_.pool.put(&closing);
  --closes_in_flight_;  // last: a thread that finds no close in flight finds the room
}

void entry_table::quarantine(entry& closing) noexcept {
  const transition of(*this, closing);
  PINFOLD_ASSERT(closing.now() == entry_state::closing && closes_in_flight_ > 0, "one thread closes an entry");
  parts_.counts.add(counter::failed_closes);
  closing.become(entry_state::quarantined);
  parts_.counts.add(counter::quarantined);
  quarantined_.push_back(&closing);
  --closes_in_flight_;
}

void entry_table::finish_close_unpublished([[maybe_unused]] const entry& opening, bool closed) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && closes_in_flight_ > 0, "its opener closes it");
  --closes_in_flight_;
  parts_.counts.add(closed ? counter::closes : counter::failed_closes);
}

void entry_table::mark_disturbed(const entry& closed) noexcept {
  if (opens_in_driver_ == 0) return;
  index_.find_overlap(closed.peer(), closed.covered(), [](entry& one) {
    if (one.in_driver) one.disturbed = true;
    return false;
  });
}

void entry_table::move_to_back(entry& quarantined) noexcept {
  PINFOLD_ASSERT(quarantined.now() == entry_state::quarantined, "only an entry in quarantine waits for another try");
  quarantined_.remove(&quarantined);
  quarantined_.push_back(&quarantined);
}

void entry_table::count_eviction(const entry& victim) noexcept {
  PINFOLD_ASSERT(victim.now() == entry_state::evicting, "only marked entries are evicted");
  parts_.counts.add(counter::evicted);
  history_.remember(victim.peer(), victim.covered().begin, miss_reason::evicted);
}

void entry_table::prepare_final_close() noexcept {
  PINFOLD_ASSERT(ended_ && settled(), "hits have ended, and their pins can be counted");
  for_each([this](entry& one) {
    if (index::pins_of(one) > 0) one.hot()->set(record::revoked);  // of an opener, too
    if (one.in == index::list_id::held) queue(one);
    if (one.now() != entry_state::live) return;
    PINFOLD_ASSERT(!one.hot()->is(record::hittable), "the end of the cache has stopped all hits");
    leave_ring(one);
    one.become(entry_state::evicting);
    evicting_.push_back(&one);
    check(one);
  });
}

}  // namespace pinfold::core

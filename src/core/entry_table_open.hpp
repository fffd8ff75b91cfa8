// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The transitions of an open that succeeds, and the room that it takes. Inline, so that the plain miss is one function
/// (engine_miss.cpp).
#pragma once

#include "core/ticks.hpp"
#include "core/transition.hpp"

#include <cstring>

namespace pinfold::core {

inline entry_table::new_entry entry_table::claim(const request& what, const extent_to_open& to, lookup_result& seen,
                                                 pending_invalidations& pending) noexcept {
  PINFOLD_ASSERT(ready_but_for_hits(), "a claim allocates nothing");
  PINFOLD_ASSERT(!ended_, "nothing is opened after the end");
  entry& fresh = *parts_.pool.take();
  const transition of(*this, fresh);
  record& hot = *fresh.hot();
  const range covered = to.covered;
  PINFOLD_ASSERT(covered.begin < covered.end, "a request has a byte at least");
  hot.begin.store(covered.begin, std::memory_order_relaxed);
  hot.end.store(covered.end, std::memory_order_relaxed);
  fresh.access = to.access;
  fresh.merged = to.merged;
  fresh.set_owner(this_thread());
  if (token_bytes_ > 0) write_token(hot, what);
  fresh.become(entry_state::opening);
  if (what.persistent || what.unshared || what.unbudgeted) [[unlikely]]
    claim_specially(fresh, what);
  if (seen.alone && to.as_scanned) {
    index_.insert(&fresh, token_bytes_ > 0 ? what.peer : peer_id{}, covered, seen.place);
  } else {
    index_.insert(&fresh);
  }
  if (parts_.registered != nullptr) parts_.registered->add(covered);
  pending.stamp(hot);
  ++size_;
  ++openings_;
  if (seen.near) note_overlap(fresh);
  return {fresh, hot};
}

inline bool entry_table::take_room(entry& opening, std::size_t more_bytes, std::size_t more_count) noexcept {
  if (!parts_.room.take(more_bytes, more_count)) return false;
  note_room(opening, more_bytes, more_count);
  return true;
}

inline void entry_table::note_room(entry& opening, std::size_t more_bytes,
                                   [[maybe_unused]] std::size_t more_count) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.bypass, "only an open takes room");
  PINFOLD_ASSERT(opening.counted == (more_count == 0), "an entry counts once");
  opening.bytes += more_bytes;
  opening.counted = true;
}

inline void entry_table::enter_driver(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "one thread opens an entry");
  opening.disturbed = false;
  opening.in_driver = true;
  ++opens_in_driver_;
}

inline void entry_table::leave_driver(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.in_driver && opens_in_driver_ > 0, "the driver was asked");
  --opens_in_driver_;
  opening.in_driver = false;
}

inline void entry_table::write_record(record& hot, const opened& made) const noexcept {
  PINFOLD_ASSERT(!hot.is(record::hittable), "no hit reads a record that is being written");
  auto* bytes = reinterpret_cast<std::byte*>(&hot);
  if (token_bytes_ > 0) reinterpret_cast<detail::imported_part*>(bytes + sizeof(record))->data = made.data;
  if (object_bytes_ == sizeof(std::uint64_t)) {  // the usual size: one instruction
    std::memcpy(bytes + object_offset_, &made.object, sizeof(std::uint64_t));
  } else {
    std::memcpy(bytes + object_offset_, &made.object, object_bytes_);
  }
}

inline void entry_table::publish(entry& opening, record& hot, const opened& made) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.counted || opening.bypass, "what is open is counted");
  PINFOLD_ASSERT(opening.pins() > 0, "the opener has pinned its lease");
  opening.opened_at = ticks();
  --openings_;
  write_record(hot, made);
  parts_.counts.add(counter::opens);
  history_.forget(token_bytes_ > 0 ? opening.peer() : peer_id{}, made.covered.begin);
  if (opening.doomed) [[unlikely]]
    return publish_doomed(opening);
  opening.become(entry_state::live);
  if (reusable(opening)) [[likely]]
    reusable_.push_back(&opening);
  open_not_hittable_.store(open_not_hittable() + 1, std::memory_order_relaxed);
  allow_hits(opening, hot, record::hittable | record::plain_release);
  if (opening.near && token_bytes_ == 0) [[unlikely]]
    publish_near(opening);
}

}  // namespace pinfold::core

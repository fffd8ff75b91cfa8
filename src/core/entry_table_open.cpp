// SPDX-License-Identifier: BSD-3-Clause
// From `free` to `opening`, and to what becomes of the open.
#include "core/ticks.hpp"
#include "core/transition.hpp"

#include <cstring>
#include <unistd.h>

namespace pinfold::core {

namespace {

using detail::imported_part;

std::int32_t this_thread() noexcept {
  thread_local const auto id = static_cast<std::int32_t>(::gettid());
  return id;
}

}  // namespace

entry& entry_table::claim(const request& what, const extent_to_open& to, lookup_result& seen,
                          pending_invalidations& pending) noexcept {
  PINFOLD_ASSERT(ready_but_for_hits(), "a claim allocates nothing");
  PINFOLD_ASSERT(!ended_, "nothing is opened after the end");
  entry& fresh = *parts_.pool.take();
  const transition of(*this, fresh);
  record& hot = *fresh.hot();
  const range covered = to.covered;
  hot.begin.store(covered.begin, std::memory_order_relaxed);
  hot.end.store(covered.end, std::memory_order_relaxed);
  fresh.access = to.access;
  fresh.merged = to.merged;
  fresh.set_owner(this_thread());
  if (token_bytes_ > 0) {
    auto* bytes = reinterpret_cast<std::byte*>(&hot);
    const imported_part beside{nullptr, what.peer};
    std::memcpy(bytes + sizeof(record), &beside, sizeof beside);
    std::memcpy(bytes + token_offset_, what.token, token_bytes_);
  }
  fresh.become(entry_state::opening);
  if (what.persistent || what.unshared || what.unbudgeted) claim_specially(fresh, what);
  if (seen.alone && to.as_scanned) {
    index_.insert(&fresh, token_bytes_ > 0 ? what.peer : peer_id{}, covered, seen.place);
  } else {
    index_.insert(&fresh);
  }
  if (parts_.registered != nullptr) parts_.registered->add(covered);
  pending.stamp(fresh);
  if (seen.near) note_overlap(fresh);
  ++size_;
  ++openings_;
  return fresh;
}

void entry_table::claim_specially(entry& fresh, const request& what) noexcept {
  fresh.persistent = what.persistent;
  fresh.doomed = fresh.unshared = what.unshared;
  fresh.bypass = what.unbudgeted;
  if (what.unbudgeted) parts_.counts.add(counter::bypasses);
  if (what.unshared && !what.unbudgeted) parts_.counts.add(counter::unmonitored);
}

// Marks the entries that overlap the new one, itself included: the one that is published last looks for those that it
// supersedes, and for one that covers it.
void entry_table::note_overlap(entry& fresh) noexcept {
  index_.find_overlap(fresh.peer(), fresh.covered(), [](entry& one) {
    one.near = true;
    return false;
  });
}

void entry_table::enter_driver(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "one thread opens an entry");
  opening.disturbed = false;
  opening.in_driver = true;
  ++opens_in_driver_;
}

void entry_table::leave_driver(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.in_driver && opens_in_driver_ > 0, "the driver was asked");
  --opens_in_driver_;
  opening.in_driver = false;
}

void entry_table::cover(entry& opening, const range& covered) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "only the opener changes the range");
  if (opening.covered() == covered) return;
  index_.erase(&opening);
  opening.cover(covered);
  index_.insert(&opening);
}

void entry_table::undoom(entry& opening, pending_invalidations& pending) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "nothing is open that could be stale");
  parts_.counts.add(counter::opens);
  opening.hot()->clear(record::stale);
  opening.doomed = opening.unshared;
  pending.stamp(opening);
  note_overlap(opening);
}

void entry_table::make_unshared(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening, "no other request was served yet");
  if (opening.unshared) return;
  opening.doomed = opening.unshared = true;
  parts_.counts.add(counter::unmonitored);
}

void entry_table::write_record(record& hot, const opened& made) const noexcept {
  PINFOLD_ASSERT(!hot.is(record::hittable), "no hit reads a record that is being written");
  auto* bytes = reinterpret_cast<std::byte*>(&hot);
  if (token_bytes_ > 0) reinterpret_cast<imported_part*>(bytes + sizeof(record))->data = made.data;
  if (object_bytes_ == sizeof(std::uint64_t)) {  // the usual size: one instruction
    std::memcpy(bytes + object_offset_, &made.object, sizeof(std::uint64_t));
  } else {
    std::memcpy(bytes + object_offset_, &made.object, object_bytes_);
  }
}

void entry_table::publish(entry& opening, record& hot, const opened& made) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.counted || opening.bypass, "what is open is counted");
  PINFOLD_ASSERT(opening.pins() > 0, "the opener has pinned its lease");
  opening.opened_at = ticks();
  --openings_;
  write_record(hot, made);
  parts_.counts.add(counter::opens);
  history_.forget(opening.peer(), made.covered.begin);
  if (opening.doomed) {
    opening.become(entry_state::draining);
    held_.push_back(&opening);
    return;
  }
  opening.become(entry_state::live);
  open_not_hittable_.store(open_not_hittable() + 1, std::memory_order_relaxed);
  if (reusable(opening)) reusable_.push_back(&opening);
  allow_hits(opening, hot);
  if (!opening.near || token_bytes_ > 0) return;
  supersede(opening.covered(), opening.access, &opening);
  if (covers(opening)) retire_covered(opening);
}

void entry_table::fail(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(!opening.in_driver, "the driver has answered");
  leave_index(opening);
  --openings_;
  give_room_back(opening);
  opening.become(entry_state::failed);
}

void entry_table::quarantine_opened(entry& opening) noexcept {
  const transition of(*this, opening);
  --openings_;
  opening.become(entry_state::quarantined);
  parts_.counts.add(counter::quarantined);
  quarantined_.push_back(&opening);
}

void entry_table::recycle(entry& failed) noexcept {
  const transition of(*this, failed);
  PINFOLD_ASSERT(failed.now() == entry_state::failed, "only the last thread that reads the error recycles the entry");
  failed.become(entry_state::free);
  parts_.pool.put(&failed);
}

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
// From `free` to `opening`, and on to the state that results from the open.
#include "core/entry_table_open.hpp"

#include <pthread.h>
#include <unistd.h>

namespace pinfold::core {

constinit thread_local std::int32_t entry_table::known_thread = 0;
// A child of fork(2) has a copy of its parent's number.
const int entry_table::forgets_thread = ::pthread_atfork(nullptr, nullptr, [] { known_thread = 0; });

std::int32_t entry_table::ask_for_thread() noexcept { return known_thread = static_cast<std::int32_t>(::gettid()); }

void entry_table::write_token(record& hot, const request& what) const noexcept {
  PINFOLD_ASSERT(what.token != nullptr, "memory of a peer has a token");
  auto* bytes = reinterpret_cast<std::byte*>(&hot);
  const detail::imported_part beside{nullptr, what.peer};
  std::memcpy(bytes + sizeof(record), &beside, sizeof beside);
  std::memcpy(bytes + token_offset_, what.token, token_bytes_);
}

void entry_table::claim_specially(entry& fresh, const request& what) noexcept {
  fresh.persistent = persists(what);
  fresh.doomed = fresh.unshared = what.unshared;
  fresh.bypass = what.unbudgeted;
  if (what.unbudgeted) parts_.counts.add(counter::bypasses);
  if (what.unshared && !what.unbudgeted) parts_.counts.add(counter::unmonitored);
}

// Marks the new entry, and those that overlap it and are being opened, too: the one that is published last looks for
// those that it supersedes, and for one that covers it.
void entry_table::note_overlap(entry& fresh) noexcept {
  PINFOLD_ASSERT(fresh.now() == entry_state::opening && openings_ > 0,
                 "an entry meets those that were there before it");
  fresh.near = true;
  if (openings_ == 1) return;
  index_.find_overlap(fresh.peer(), fresh.covered(), [](entry& one) {
    if (one.now() == entry_state::opening) one.near = true;
    return false;
  });
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
  pending.stamp(*opening.hot());
  note_overlap(opening);
}

void entry_table::make_unshared(entry& opening) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening, "no other request was served yet");
  if (opening.unshared) return;
  opening.doomed = opening.unshared = true;
  parts_.counts.add(counter::unmonitored);
}

void entry_table::publish_doomed(entry& opening) noexcept {
  PINFOLD_ASSERT(opening.doomed && !opening.hot()->is(record::listed), "no request finds a doomed entry");
  opening.become(entry_state::draining);
  hold(opening);
}

void entry_table::publish_near(entry& live) noexcept {
  supersede(live.covered(), live.access, &live);
  if (covers(live)) retire_covered(live);
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
  PINFOLD_ASSERT(!opening.in_driver, "the driver has answered");
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

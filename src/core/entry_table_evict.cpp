// SPDX-License-Identifier: BSD-3-Clause
// From `live` to `evicting`. Until the next barrier, hits may still pin an entry whose hits were stopped.
#include "core/sync_point.hpp"
#include "core/ticks.hpp"
#include "core/transition.hpp"

#include <algorithm>

namespace pinfold::core {

namespace {

// The largest number of victims marked at once: a barrier costs more than all the rest, and a request for a victim that
// was not needed revives it under the mutex.
constexpr std::size_t batch = 64;

}  // namespace

void entry_table::begin_evict(entry& live) noexcept {
  PINFOLD_ASSERT(live.now() == entry_state::live, "only open entries in use are evicted");
  sync_point();  // the caller may have seen no pin
  stop_hits(live);
  sync_point();
  leave_ring(live);
  live.become(entry_state::evicting);
  chosen_.push_back(&live);
  check(live);
}

void entry_table::spare(entry& spared) noexcept {
  PINFOLD_ASSERT(spared.in == index::list_id::reusable, "the hand passes entries that are kept");
  if (auto* const at = spared.used_at()) *at = ticks();
  reusable_.remove(&spared);
  reusable_.push_back(&spared);
}

// Takes a leased entry out of the ring, so that no later miss passes it. Until the next barrier, a release may not see
// that it has to finish.
void entry_table::set_aside(entry& leased) noexcept {
  const transition of(*this, leased);
  PINFOLD_ASSERT(leased.in == index::list_id::reusable, "the hand passes entries that are kept");
  leased.hot()->clear(record::plain_release);
  sync_point();
  reusable_.remove(&leased);
  leased_.push_back(&leased);
  ++newly_leased_;
  if (auto* const at = leased.used_at()) *at = ticks();
}

void entry_table::put_back(entry& released) noexcept {
  const transition of(*this, released);
  PINFOLD_ASSERT(released.in == index::list_id::leased, "only what was set aside is put back");
  leased_.remove(&released);
  reusable_.push_back(&released);
  released.used = true;  // a lease that lasts is a use
  if (auto* const at = released.used_at()) *at = ticks();
  record& hot = *released.hot();
  if (hot.is(record::hittable)) hot.set(record::plain_release);
}

// An entry that was hit since the hand passed gets another round; one that is pinned leaves the ring until its next
// release.
void entry_table::begin_evict_victims(std::size_t of, unsigned rounds) noexcept {
  PINFOLD_ASSERT(of > 0 && rounds > 0, "the hand passes each entry once at least");
  const auto wanted = std::min(batch, 1 + reusable_.size() / of);
  for (auto left = rounds * reusable_.size(); left > 0 && chosen_.size() < wanted && !reusable_.empty(); --left) {
    entry& one = *reusable_.front();
    if (one.visited_since_hand()) {
      spare(one);
    } else if (one.pins() > 0) {
      set_aside(one);
    } else {
      begin_evict(one);
    }
  }
}

void entry_table::begin_evict_all() noexcept {
  while (entry* one = reusable_.front()) begin_evict(*one);
}

void entry_table::begin_evict_unpinned() noexcept {
  for (auto left = reusable_.size(); left > 0; --left) {
    entry& one = *reusable_.front();
    if (one.pins() <= 0) {
      begin_evict(one);
    } else {
      note_pinned(one);
      spare(one);
    }
  }
}

void entry_table::begin_evict_idle() noexcept {
  for (auto left = reusable_.size(); left > 0; --left) {
    entry& one = *reusable_.front();
    const bool visited = one.visited_since_sweep();
    if (!visited && one.pins() <= 0) {
      begin_evict(one);
    } else {
      one.used = one.pins() > 0;  // a lease that lasts is a use
      spare(one);
    }
  }
}

void entry_table::revive_all_but_a_batch() noexcept {
  PINFOLD_ASSERT(settled(), "only settled entries are revived");
  while (evicting_.size() > batch) revive(*evicting_.front());
}

}  // namespace pinfold::core

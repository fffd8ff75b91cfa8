// SPDX-License-Identifier: BSD-3-Clause
// From `live` to `evicting`. Until the next barrier, hits may still pin an entry whose hits were stopped.
#include "core/sync_point.hpp"
#include "core/ticks.hpp"
#include "core/transition.hpp"

#include <algorithm>

namespace pinfold::core {

namespace {

// How many victims at most are marked at once: a barrier costs more than all the rest, and a request for one that was
// not needed revives it under the mutex.
constexpr std::size_t batch = 64;

}  // namespace

void entry_table::begin_evict(entry& live) noexcept {
  PINFOLD_ASSERT(live.now() == entry_state::live, "only open entries in use are evicted");
  sync_point();  // the caller may have seen no pin
  stop_hits(live);
  sync_point();
  if (live.in == index::list_id::reusable) reusable_.remove(&live);
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

// An entry that was hit since the hand passed, or is pinned, gets another round.
void entry_table::begin_evict_victims(std::size_t of, unsigned rounds) noexcept {
  PINFOLD_ASSERT(of > 0 && rounds > 0, "the hand passes each entry once at least");
  const auto wanted = std::min(batch, 1 + reusable_.size() / of);
  for (auto left = rounds * reusable_.size(); left > 0 && chosen_.size() < wanted && !reusable_.empty(); --left) {
    entry& one = *reusable_.front();
    if (!one.visited_since_hand() && one.pins() <= 0) {
      begin_evict(one);
    } else {
      spare(one);
    }
  }
}

void entry_table::begin_evict_all() noexcept {
  saw_transient_ = false;
  while (entry* one = reusable_.front()) begin_evict(*one);
}

void entry_table::begin_evict_unpinned() noexcept {
  saw_transient_ = false;
  for (auto left = reusable_.size(); left > 0; --left) {
    entry& one = *reusable_.front();
    if (one.pins() <= 0) {
      begin_evict(one);
    } else {
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

// SPDX-License-Identifier: BSD-3-Clause
// To `draining`: entries that no request may find any more, because their memory is gone, or they are not kept. Also
// settles the unsettled entries after the barrier.
#include "core/transition.hpp"

#include <algorithm>
#include <utility>

namespace pinfold::core {

using index::list_id;

void entry_table::retire(entry& old) noexcept {
  PINFOLD_ASSERT(old.findable(), "only what requests may find is hidden");
  stop_hits(old);
  leave_hit_table(old);
  if (old.now() == entry_state::opening) {
    old.doomed = true;
    return check(old);
  }
  if (old.in == list_id::evicting) evicting_.remove(&old);
  if (old.in == list_id::chosen) chosen_.remove(&old);
  leave_ring(old);
  old.become(entry_state::draining);
  retired_.push_back(&old);
  check(old);
}

void entry_table::invalidate(entry& gone) noexcept {
  history_.remember(gone.peer(), gone.covered().begin, miss_reason::invalidated);
  gone.hot()->set(record::stale);
  if (gone.findable()) retire(gone);
}

std::size_t entry_table::invalidate_next(peer_id peer, range& left, std::span<entry*> invalidated, std::uint32_t before,
                                         const void* token) noexcept {
  std::size_t count = 0;
  const auto invalidate_unless_full = [&](entry& one) {
    if (one.hot()->is(record::stale) || one.era() >= before) return false;
    if (token != nullptr && !same_token(one, token)) return false;
    const bool findable = one.findable();
    if (!findable && one.now() != entry_state::opening && (one.pins() <= 0 || one.now() == entry_state::quarantined))
      return false;
    if (count == invalidated.size()) return true;
    invalidate(one);
    if (!findable) parts_.counts.add(counter::invalidated_while_leased);
    invalidated[count++] = &one;
    return false;
  };
  auto next = left.end;
  for (const auto* in : {&index_, &held_index_}) {
    const entry* const rest = in->find_overlap(peer, left, invalidate_unless_full);
    if (rest != nullptr) next = std::min(next, std::max(left.begin, rest->covered().begin));
  }
  left.begin = next;
  return count;
}

void entry_table::supersede(const range& covered, access_flags access, const entry* by) noexcept {
  PINFOLD_ASSERT(token_bytes_ == 0, "only local memory is superseded");
  index_.find_beginning({}, covered, [&](entry& one) {
    const bool lesser = &one != by && one.findable() && one.now() != entry_state::opening && !one.persistent &&
                        covered.contains(one.covered()) && contains_all(access, one.access);
    if (lesser) retire(one);
    return false;
  });
}

bool entry_table::covers(const entry& lesser) const noexcept {
  return index_.find_containing({}, lesser.covered(), [&](const entry& one) {
    return &one != &lesser && one.findable() && one.now() != entry_state::opening && !one.bypass &&
           contains_all(one.access, lesser.access);
  }) != nullptr;
}

void entry_table::retire_covered(entry& covered) noexcept {
  const bool open = covered.now() == entry_state::live || covered.now() == entry_state::evicting;
  if (open && !covered.persistent) retire(covered);
}

void entry_table::retire_released() noexcept {
  index_.for_each([this](entry& one) {
    if (one.now() != entry_state::live || kept(one)) return;
    if (one.pins() > 0) {
      note_pinned(one);
    } else {
      retire(one);
    }
  });
}

void entry_table::retire_idle() noexcept {
  while (entry* idle = evicting_.front()) {
    parts_.counts.add(counter::expired);
    history_.remember(idle->peer(), idle->covered().begin, miss_reason::evicted);
    retire(*idle);
  }
}

entry* entry_table::unpersist_next(peer_id peer, const range& where) noexcept {
  const auto is_persistent = [](const entry& one) { return one.persistent && one.findable(); };
  entry* const found = index_.find_overlap(peer, where, is_persistent);
  if (found == nullptr) return nullptr;
  found->persistent = false;
  if (reusable(*found)) reusable_.push_back(found);
  check(*found);
  return found;
}

void entry_table::set_held_apart() noexcept {
  constexpr int most = 32;  // a miss adds one at most
  for (int moved = 0; moved < most && next_apart_ != nullptr && held_index_.ready(); ++moved) {
    entry& one = *std::exchange(next_apart_, next_apart_->next.get());
    index_.erase(&one);
    held_index_.insert(&one);
    one.apart = true;
  }
}

void entry_table::forget_eras() noexcept {
  for_each([](entry& one) { one.set_era(0); });
}

std::size_t entry_table::settle() noexcept {
  const auto due = queued_.size();
  for (entry* one = leased_.back(); newly_leased_ > 0; --newly_leased_) {
    entry* const before = one->previous.get();
    if (one->pins() <= 0) {
      put_back(*one);
    } else {
      note_pinned(*one);
    }
    one = before;
  }
  while (entry* one = chosen_.front()) {
    const transition of(*this, *one);
    chosen_.remove(one);
    evicting_.push_back(one);
    if (one->pins() <= 0) continue;
    note_pinned(*one);
    revive(*one, leased_);  // the barrier is passed: every later release sees that it has to finish
  }
  while (entry* old = retired_.front()) {
    const transition of(*this, *old);
    retired_.remove(old);
    if (old->pins() > 0) {
      note_pinned(*old);
      if (old->hot()->is(record::stale)) parts_.counts.add(counter::invalidated_while_leased);
      hold(*old);
    } else {
      queue(*old);
    }
  }
  PINFOLD_ASSERT(settled(), "every unsettled entry was sorted");
  return queued_.size() - due;
}

}  // namespace pinfold::core

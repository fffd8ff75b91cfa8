// SPDX-License-Identifier: BSD-3-Clause
// What `quiesce` closes is remembered, so that `restore` can register it again.
#include "core/engine.hpp"
#include "core/ticks.hpp"

#include <utility>

namespace pinfold::detail {

namespace {

bool worth_remembering(const entry& one) noexcept {
  const bool open = one.now() == entry_state::live || one.now() == entry_state::evicting;
  return open && !one.unshared && !one.bypass;
}

}  // namespace

// Throws std::bad_alloc. The list has room before the mutex is taken: nothing is allocated under it.
void engine::list_what_is_open(core::remembered_list& listed) const {
  const auto now = core::ticks();
  for (const shard& in : shards_) {
    for (std::size_t needed = 0;;) {
      listed.reserve(needed);
      os::scoped_lock guard(in.mutex);
      needed = in.table.size();
      if (needed > listed.room()) continue;
      in.table.for_each([&](const entry& one) {
        if (!worth_remembering(one)) return;
        const bool visited = one.hot()->visited.load(std::memory_order_relaxed) != 0;
        listed.add({one.peer(), one.covered(), one.access, one.persistent, visited, one.hits(), now - one.opened_at},
                   reinterpret_cast<const std::byte*>(one.hot()) + token_offset_);
      });
      break;
    }
  }
}

// From now on invalidations concern what the caller lists. Throws std::bad_alloc, and changes nothing then.
void engine::begin_remembering(core::being_closed& mine) {
  {
    const std::scoped_lock guard(remembered_mutex_);
    mine.next = std::exchange(closing_, &mine);
  }
  try {
    list_what_is_open(mine.list);
  } catch (const std::bad_alloc&) {
    stop_listing(mine);
    throw;
  }
}

void engine::stop_listing(const core::being_closed& mine) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  auto** link = &closing_;
  while (*link != &mine) link = &(*link)->next;
  *link = mine.next;
}

// Adds what an earlier `quiesce` closed, and was not restored since.
void engine::end_remembering(core::being_closed& mine) noexcept {
  stop_listing(mine);
  const std::scoped_lock guard(remembered_mutex_);
  mine.list.forget(mine.gone);
  if (mine.lost) return;
  static_cast<void>(mine.list.complete(remembered_));  // without memory for both the new one is kept
  remembered_.swap(mine.list);
}

std::size_t engine::remembers() noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  remembered_.forget_noted();
  return remembered_.size();
}

// Memory that is invalidated is not registered again. Every claim for a restored registration comes before the look at
// its shard that follows here, and is found there; or it comes after it, and sees the mark.
void engine::forget_remembered(peer_id peer, const range& gone) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  remembered_.forget(peer, gone);
  for (auto* one = closing_; one != nullptr; one = one->next) try {
      one->gone.add(peer, gone);
    } catch (const std::bad_alloc&) {
      one->lost = true;
    }
  for (auto* one = restoring_; one != nullptr; one = one->next)
    if (one->what.peer == peer && one->what.where.overlaps(gone))
      one->meanwhile.withdrawn.store(true, std::memory_order_relaxed);
}

bool engine::begin_restoring(core::restored_now& one) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  if (!remembered_.take_hottest(one)) return false;
  one.next = std::exchange(restoring_, &one);
  return true;
}

void engine::end_restoring(const core::restored_now& one) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  auto** link = &restoring_;
  while (*link != &one) link = &(*link)->next;
  *link = one.next;
  remembered_.uncount(one.what);  // an entry that was made is counted by now
}

void engine::unpersist_remembered(peer_id peer, const range& where) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  remembered_.unpersist(peer, where);
  for (auto* one = restoring_; one != nullptr; one = one->next)
    if (one->what.peer == peer && one->what.where.overlaps(where))
      one->meanwhile.unpersisted.store(true, std::memory_order_relaxed);
}

}  // namespace pinfold::detail

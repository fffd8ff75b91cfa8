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
core::remembered_list engine::list_what_is_open() const {
  core::remembered_list listed(driver_.token_bytes);
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
  return listed;
}

// Throws std::bad_alloc.
core::remembered_list engine::list_to_remember() {
  core::remembered_list listed = list_what_is_open();
  const std::scoped_lock guard(remembered_mutex_);
  listed.complete(remembered_);
  return listed;
}

void engine::remember(core::remembered_list&& these) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  std::swap(remembered_, these);
}

std::size_t engine::remembers() const noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  return remembered_.size();
}

// Memory that the caller invalidates is not registered again. Every claim for a restored registration comes before the
// look at its shard that follows here, and is found there; or it comes after it, and sees the mark.
void engine::forget_remembered(peer_id peer, const range& gone) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  remembered_.forget(peer, gone);
  for (auto* one = restoring_; one != nullptr; one = one->next)
    if (one->what.peer == peer && one->what.where.overlaps(gone)) one->withdrawn.store(true, std::memory_order_relaxed);
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
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// What `quiesce` closes is remembered, so that `restore` can register it again.
#include "core/engine.hpp"
#include "core/ticks.hpp"

#include <utility>

namespace pinfold::detail {

namespace {

template <class T>
void unlink(T*& first, const T& gone) noexcept {
  T** link = &first;
  while (*link != &gone) {
    PINFOLD_ASSERT(*link != nullptr, "what is taken out is listed");
    link = &(*link)->next;
  }
  *link = gone.next;
}

bool concerns(const core::said_now& said, const core::remembered& one) noexcept {
  return said.peer == one.peer && said.where.overlaps(one.where);
}

}  // namespace

// Not what an event has invalidated that is still pending.
bool engine::worth_remembering(const shard& in, const entry& one) noexcept {
  const bool open = one.now() == entry_state::live || one.now() == entry_state::evicting;
  return open && !one.hot()->is(record::stale) && !one.unshared && !one.bypass && !in.pending.affects(one);
}

// Makes the caller the only one that quiesces, and waits for what `restore` is registering, which would be open
// afterwards. Restorations that began before it end.
result<void> engine::begin_quiescing() noexcept {
  const deadlines until(options_);
  change_waiter self(changes_);
  bool mine = false;
  const auto alone = [&] {
    const std::scoped_lock guard(remembered_mutex_);
    if (!mine && quiescing_) return false;
    if (!mine) ++quiesces_;
    mine = quiescing_ = true;
    return restoring_ == nullptr;
  };
  while (!alone()) {
    if (wait_for_change(self, until.others())) continue;
    if (mine) end_quiescing();
    return fail(errc::timed_out, "another quiesce, or an open by a restoration, did not end in time");
  }
  return {};
}

void engine::end_quiescing() noexcept {
  {
    const std::scoped_lock guard(remembered_mutex_);
    PINFOLD_ASSERT(quiescing_, "a quiesce that ends was begun");
    quiescing_ = false;
  }
  changes_.notify();
}

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
        in.mutex.says_held();
        if (!worth_remembering(in, one)) return;
        const bool visited = one.hot()->visited.load(std::memory_order_relaxed) != 0;
        listed.add({one.peer(), one.covered(), one.access, one.persistent, visited, one.hits(), now - one.opened_at},
                   reinterpret_cast<const std::byte*>(one.hot()) + token_offset_);
      });
      break;
    }
  }
}

// From now on, what is said concerns what the caller lists. Throws std::bad_alloc, and changes nothing then.
void engine::begin_remembering(core::being_closed& mine) {
  {
    const std::scoped_lock guard(remembered_mutex_);
    mine.next = std::exchange(closing_, &mine);
    note_what_is_remembered();
  }
  try {
    list_what_is_open(mine.list);
  } catch (const std::bad_alloc&) {
    const std::scoped_lock guard(remembered_mutex_);
    unlink(closing_, mine);
    note_what_is_remembered();
    throw;
  }
}

// Adds what an earlier `quiesce` closed, and was not restored since. In one critical section: whatever is said comes to
// this list, or to the one that it becomes.
void engine::end_remembering(core::being_closed& mine) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  unlink(closing_, mine);
  if (mine.apply()) {
    static_cast<void>(mine.list.complete(remembered_));  // without memory for both the new one is kept
    remembered_.swap(mine.list);
  }
  note_what_is_remembered();
}

// Set before the first shard is listed: a visit to a shard that was listed sees it, by the shard's mutex.
void engine::note_what_is_remembered() noexcept {
  const bool any = closing_ != nullptr || restoring_ != nullptr || remembered_.size() > 0;
  anything_remembered_.store(any, std::memory_order_relaxed);
}

engine::restorable engine::remembers() noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  remembered_.forget_noted();
  return {remembered_.size(), quiesces_};
}

// Before a shard is visited, under its mutex. Every claim for a restored registration comes before the visit to its
// shard, and is found there; or it comes after it, and sees the mark. If nothing is remembered, the shard was not
// listed.
void engine::saying::before_visit() noexcept {
  if (linked_ || !on_.anything_remembered_.load(std::memory_order_relaxed)) return;
  linked_ = true;
  const std::scoped_lock guard(on_.remembered_mutex_);
  said_.next = std::exchange(on_.saying_, &said_);
  for (auto* one = on_.restoring_; one != nullptr; one = one->next)
    if (concerns(said_, one->what)) mark(*one);
}

// After the shards were visited. What a `quiesce` listed before the visit is in one of these lists, as nothing of it is
// restored until now; what it lists after the visit is not affected.
engine::saying::~saying() {
  if (!linked_) return;
  const std::scoped_lock guard(on_.remembered_mutex_);
  unlink(on_.saying_, said_);
  on_.remembered_.apply(said_);
  on_.note_what_is_remembered();
  for (auto* one = on_.closing_; one != nullptr; one = one->next) one->note(said_);
}

void engine::saying::mark(core::restored_now& one) const noexcept {
  auto& told = one.meanwhile;
  auto& which = said_.what == core::said_now::of::gone ? told.withdrawn : told.unpersisted;
  which.store(true, std::memory_order_relaxed);
}

// Returns whether the memory is still there, as far as calls say that have not ended.
bool engine::heed_what_is_said(core::restored_now& one) const noexcept {
  bool there = true;
  for (const auto* said = saying_; said != nullptr; said = said->next) {
    if (!concerns(*said, one.what)) continue;
    if (said->what == core::said_now::of::gone) there = false;
    one.what.persistent = false;
  }
  return there;
}

bool engine::begin_restoring(core::restored_now& one, std::uint64_t since) noexcept {
  const std::scoped_lock guard(remembered_mutex_);
  while (!quiescing_ && quiesces_ == since && remembered_.take_hottest(one)) {
    if (heed_what_is_said(one)) {
      one.next = std::exchange(restoring_, &one);
      return true;
    }
    remembered_.uncount(one.what);
  }
  note_what_is_remembered();
  return false;
}

void engine::end_restoring(const core::restored_now& one) noexcept {
  {
    const std::scoped_lock guard(remembered_mutex_);
    unlink(restoring_, one);
    remembered_.uncount(one.what);  // an entry that was made is counted by now
    note_what_is_remembered();
  }
  changes_.notify();
}

}  // namespace pinfold::detail

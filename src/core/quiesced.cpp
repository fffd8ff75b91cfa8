// SPDX-License-Identifier: BSD-3-Clause
#include "core/quiesced.hpp"

#include "os/check.hpp"

#include <utility>

namespace pinfold::core {

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

bool concerns(const withdrawal& call, const remembered& one) noexcept {
  return call.peer == one.peer && call.where.overlaps(one.where);
}

}  // namespace

// Restorations that began earlier restore nothing more: they began with another value of `quiesces_`.
bool quiesced::begin(bool& mine) noexcept {
  const std::scoped_lock guard(mutex_);
  if (!mine && quiescing_) return false;
  if (!mine) ++quiesces_;
  mine = quiescing_ = true;
  return restoring_ == nullptr;
}

void quiesced::end() noexcept {
  {
    const std::scoped_lock guard(mutex_);
    PINFOLD_ASSERT(quiescing_, "a quiesce that ends was begun");
    quiescing_ = false;
  }
  changes_.notify();
}

void quiesced::begin_listing(being_closed& mine) noexcept {
  const std::scoped_lock guard(mutex_);
  mine.next = std::exchange(closing_, &mine);
  note_whether_any();
}

void quiesced::cancel_listing(being_closed& mine) noexcept {
  const std::scoped_lock guard(mutex_);
  unlink(closing_, mine);
  note_whether_any();
}

// In one critical section, so that each withdrawal applies to this list, or to the one that it becomes.
void quiesced::finish_listing(being_closed& mine) noexcept {
  const std::scoped_lock guard(mutex_);
  PINFOLD_ASSERT(quiescing_, "only the thread that quiesces lists");
  unlink(closing_, mine);
  if (mine.apply()) {
    static_cast<void>(mine.list.complete(list_));  // without memory for both the new one is kept
    list_.swap(mine.list);
  }
  note_whether_any();
}

// Called before the first shard is listed: a visit to a listed shard sees `any_`, by the shard's mutex.
void quiesced::note_whether_any() noexcept {
  const bool any = closing_ != nullptr || restoring_ != nullptr || list_.size() > 0;
  any_.store(any, std::memory_order_relaxed);
}

quiesced::restorable quiesced::left() noexcept {
  const std::scoped_lock guard(mutex_);
  list_.forget_noted();
  return {list_.size(), quiesces_};
}

// Called before a shard is visited, under its mutex. A claim for a restored registration either comes before the visit,
// which finds it, or after, and sees the mark. If nothing is remembered, the shard was not listed.
void quiesced::withdrawing::link() noexcept {
  linked_ = true;
  const std::scoped_lock guard(from_.mutex_);
  call_.next = std::exchange(from_.withdrawals_, &call_);
  for (auto* one = from_.restoring_; one != nullptr; one = one->next)
    if (concerns(call_, one->what)) mark(*one);
}

// Called after the shards were visited. A registration that a `quiesce` listed before the visit is in one of these
// lists, as it was not restored until now; one that it lists after the visit is not affected.
quiesced::withdrawing::~withdrawing() {
  if (!linked_) return;
  const std::scoped_lock guard(from_.mutex_);
  unlink(from_.withdrawals_, call_);
  from_.list_.apply(call_);
  from_.note_whether_any();
  for (auto* one = from_.closing_; one != nullptr; one = one->next) one->note(call_);
}

void quiesced::withdrawing::mark(restored_now& one) const noexcept {
  auto& told = one.meanwhile;
  auto& which = call_.what == withdrawal::of::gone ? told.withdrawn : told.unpersisted;
  which.store(true, std::memory_order_relaxed);
}

// Returns whether the memory is still there, according to the withdrawals that have not ended.
bool quiesced::is_still_there(restored_now& one) const noexcept {
  bool there = true;
  for (const auto* call = withdrawals_; call != nullptr; call = call->next) {
    if (!concerns(*call, one.what)) continue;
    if (call->what == withdrawal::of::gone) there = false;
    one.what.persistent = false;
  }
  return there;
}

bool quiesced::begin_restoring(restored_now& one, std::uint64_t since) noexcept {
  const std::scoped_lock guard(mutex_);
  while (!quiescing_ && quiesces_ == since && list_.take_hottest(one)) {
    if (is_still_there(one)) {
      one.next = std::exchange(restoring_, &one);
      return true;
    }
    list_.uncount(one.what);
  }
  note_whether_any();
  return false;
}

void quiesced::end_restoring(const restored_now& one) noexcept {
  {
    const std::scoped_lock guard(mutex_);
    unlink(restoring_, one);
    list_.uncount(one.what);  // if an entry was made, it is counted by now
    note_whether_any();
  }
  changes_.notify();
}

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
// Closing all entries that no lease holds: flush, quiesce, progress; and evict.
#include "core/engine.hpp"

#include <new>

namespace pinfold::detail {

result<void> engine::close_unpinned(shard& in) noexcept {
  queue_released(in);
  auto first = close_queued(in, SIZE_MAX);
  in.table.begin_evict_unpinned();
  settle(in);
  auto evicted = close_evicting(in);
  return first ? evicted : first;
}

// Closes all entries of a shard that no lease holds. A transient pin may keep such an entry open: waits for its end.
result<void> engine::close_unheld(shard& in, const deadlines& until) noexcept {
  release_watch watch(changes_);
  auto first = retry_quarantined(in);
  do {
    auto closed = close_unpinned(in);
    if (first && !closed) first = closed;
  } while (wait_for_transient(in, watch, until));
  return first;
}

result<void> engine::close_all_unheld() noexcept {
  const deadlines until(options_);
  result<void> first;
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    auto closed = close_unheld(in, until);
    if (first && !closed) first = closed;
  }
  if (auto finished = wait_for_closes(); first) first = finished;
  if (!first) return first;
  for (shard& in : shards_) {  // closes by other threads, which the driver refused meanwhile
    os::scoped_lock guard(in.mutex);
    auto retried = retry_quarantined(in);
    if (first && !retried) first = retried;
  }
  return first;
}

// Waits for closes by other threads: no lease holds those entries either, and the caller wants them closed, too.
result<void> engine::wait_for_closes() noexcept {
  const deadlines until(options_);
  change_waiter self(changes_);
  while (closes_in_flight() > 0)
    if (!wait_for_change(self, until.others()))
      return fail(errc::timed_out, "another thread's close did not finish in time");
  return {};
}

// Never waits for a lease: the calling cache does not know which thread holds it.
bool engine::close_idle(const range& where) noexcept {
  const cache_options impatient;  // not static: a child of fork(2) could wait for its initialization
  const deadlines until(impatient);
  const error refused{.code = errc::already_mapped};
  mark_stale(where);
  bool any = false;
  for (shard& in : shards_.of(shards_.map().overlapping(where))) {
    os::scoped_lock guard(in.mutex);
    const auto changed = clear_overlaps(in, {}, where, nullptr, refused, until);
    any = (changed && *changed) || any;
  }
  return any;
}

result<void> engine::flush() noexcept {
  catch_up_with_everything();
  return close_all_unheld();
}

void engine::stop_all_hits() noexcept {
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    in.table.stop_all_hits();
  }
  for (shard& in : shards_) {  // the first barrier is enough, unless the kernel refuses it
    os::scoped_lock guard(in.mutex);
    if (order_hits(in)) break;
  }
}

// Stops hits first: while hits go on, no count of leases is right, as a lease may begin and end between two looks.
result<void> engine::quiesce() noexcept {
  if (auto alone = begin_quiescing(); !alone) return alone;
  catch_up_with_everything();
  stop_all_hits();
  auto done = quiesce_without_hits();
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    in.table.resume_hits();
  }
  quiesced_.end();
  return done;
}

result<void> engine::quiesce_without_hits() noexcept {
  const deadlines until(options_);
  change_waiter self(changes_);
  while (const auto out = in_use())
    if (out > ledger::others() || !wait_for_change(self, until.transient()))
      return fail(errc::in_use_conflict, "leases are still held");
  return close_all_and_remember();
}

// Closes persistent registrations, too: a checkpoint must find the driver empty. If a close fails, `restore` registers
// the closed ones again.
result<void> engine::close_all_and_remember() noexcept try {
  core::being_closed mine{core::remembered_list(driver_.token_bytes(), watched_)};
  begin_remembering(mine);               // first: if memory for it is missing, nothing is closed
  unpersist_open({}, {0, UINTPTR_MAX});  // only local memory can be persistent
  auto closed = close_all_unheld();
  quiesced_.finish_listing(mine);
  if (closed && in_use() > 0) return fail(errc::in_use_conflict, "a lease was acquired meanwhile");
  return closed;
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory to remember what is registered");
}

std::size_t engine::evict(std::size_t most) noexcept {
  catch_up_with_everything();
  shard& any = shards_[0];
  os::scoped_lock guard(any.mutex);
  std::size_t closed = 0;
  while (closed < most && close_one_for_room(any) == looked::closed_one) ++closed;
  return closed;
}

result<void> engine::progress() noexcept {
  catch_up_with_everything();
  give_way();
  result<void> first;
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    if (in.table.queue_released() > 0) closes_are_due();
    queue_idle(in);
    auto closed = close_queued(in, SIZE_MAX);
    auto retried = retry_quarantined(in);
    if (first) first = closed ? retried : closed;
  }
  return first;
}

}  // namespace pinfold::detail

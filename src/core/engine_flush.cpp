// SPDX-License-Identifier: BSD-3-Clause
// Closing all entries that no lease holds: flush, quiesce, progress; and evict.
#include "core/engine.hpp"

namespace pinfold::detail {

result<void> engine::close_unpinned() noexcept {
  queue_released();
  auto first = close_queued(SIZE_MAX);
  table_.begin_evict_unpinned();
  settle();
  auto evicted = close_evicting();
  return first ? evicted : first;
}

// Closes all entries that no lease holds. A transient pin may keep such an entry open: waits for that.
result<void> engine::close_unheld() noexcept {
  const deadlines until(options_);
  release_watch watch;
  auto first = retry_quarantined();
  do {
    auto closed = close_unpinned();
    if (first && !closed) first = closed;
  } while (wait_for_transient(watch, until));
  const auto finished = wait_for_closes();
  return first ? finished : first;
}

// Waits for closes by other threads: no lease holds those entries either, and the caller wants them gone, too.
result<void> engine::wait_for_closes() noexcept {
  const deadlines until(options_);
  while (table_.closes_in_flight() > 0)
    if (!wait_for(this, until.others())) return fail(errc::timed_out, "another thread's close did not finish in time");
  return {};
}

result<void> engine::flush() noexcept {
  catch_up_with_everything();
  os::scoped_lock guard(mutex_);
  return close_unheld();
}

// Stops hits first: while hits go on, no count of leases is right, as a lease may come and go between two looks.
result<void> engine::quiesce() noexcept {
  catch_up_with_everything();
  os::scoped_lock guard(mutex_);
  table_.stop_all_hits();
  order_hits();
  auto done = quiesce_without_hits();
  table_.resume_hits();
  return done;
}

result<void> engine::quiesce_without_hits() noexcept {
  const deadlines until(options_);
  while (const auto out = in_use())
    if (out > ledger::others() || !wait_for(this, until.transient()))
      return fail(errc::in_use_conflict, "leases are still held");
  auto closed = close_unheld();
  if (closed && in_use() > 0) return fail(errc::in_use_conflict, "a lease was acquired meanwhile");
  return closed;
}

std::size_t engine::evict(std::size_t most) noexcept {
  catch_up_with_everything();
  os::scoped_lock guard(mutex_);
  std::size_t closed = 0;
  while (closed < most && close_one_for_room()) ++closed;
  return closed;
}

result<void> engine::progress() noexcept {
  catch_up_with_everything();
  os::scoped_lock guard(mutex_);
  if (table_.queue_released() > 0) closes_are_due();
  queue_idle();
  auto first = close_queued(SIZE_MAX);
  auto retried = retry_quarantined();
  return first ? retried : first;
}

}  // namespace pinfold::detail

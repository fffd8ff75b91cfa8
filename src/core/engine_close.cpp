// SPDX-License-Identifier: BSD-3-Clause
// Calling the driver to close, and quarantine.
#include "core/engine.hpp"

namespace pinfold::detail {

// Closes an entry. Tells the sink `why`, which is absent when the application asked for the close.
result<void> engine::close(shard& in, entry& closable, std::optional<event_kind> why) noexcept {
  std::optional<event> told;
  if (why && (options_.sink || is_observed()))
    told = about(closable, *why, *why == event_kind::evicted ? severity::debug : severity::info);
  const auto object = in.table.begin_close(closable);
  in.mutex.unlock();
  if (told) tell(*told);
  auto closed = call_close(object, closable.covered());
  if (!closed) tell_failed_close(about(closable, event_kind::close_failed, severity::failure), closed.error());
  in.mutex.lock();
  PINFOLD_ASSERT(closable.now() == entry_state::closing, "no other thread touches an entry that is being closed");
  closed ? in.table.finish_close(closable) : in.table.quarantine(closable);
  if (closed) closes_done_.fetch_add(1, std::memory_order_acq_rel);
  in.waiting.notify(&closable);
  changes_.notify();
  return closed;
}

// Closes what the driver opened and nothing refers to yet. Returns false when the driver refuses, after telling the
// sink.
bool engine::close_unpublished(shard& in, entry& opening, const opened& made) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "its opener takes it back");
  in.table.begin_close_unpublished();
  const event failed = about(opening, event_kind::close_failed, severity::failure);
  in.mutex.unlock();
  const auto closed = call_close(made.object, failed.where);
  if (!closed) tell_failed_close(failed, closed.error());
  in.mutex.lock();
  in.table.finish_close_unpublished(opening, closed.has_value());
  if (closed) closes_done_.fetch_add(1, std::memory_order_acq_rel);
  changes_.notify();
  return closed.has_value();
}

result<void> engine::close_queued(shard& in, std::size_t at_most) noexcept {
  result<void> first;
  for (std::size_t i = 0; i < at_most; ++i) {
    entry* const due = in.table.first_due();
    if (due == nullptr) break;
    auto closed = close(in, *due);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::close_evicting(shard& in) noexcept {
  result<void> first;
  while (entry* const idle = in.table.first_evicting()) {
    auto closed = close(in, *idle);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::retry_quarantined(shard& in, core::deadline until) noexcept {
  result<void> first;
  for (std::size_t left = in.table.quarantined(); left > 0; --left) {
    if (until != core::deadline::max() && std::chrono::steady_clock::now() >= until) break;
    entry* const owed = in.table.first_quarantined();
    if (owed == nullptr) break;
    if (open_waiter::waits(in.open_waiters, *owed)) {  // to read why its open failed; any other pin on it is transient
      in.table.move_to_back(*owed);
      continue;
    }
    auto closed = close(in, *owed);
    if (first && !closed) first = closed;
  }
  return first;
}

}  // namespace pinfold::detail

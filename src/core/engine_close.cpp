// SPDX-License-Identifier: BSD-3-Clause
// Calling the driver to close, and quarantine.
#include "core/engine.hpp"

namespace pinfold::detail {

// Closes an entry. Tells the sink `why`, which is absent when the application asked for the close.
result<void> engine::close(entry& closable, std::optional<event_kind> why) noexcept {
  std::optional<event> told;
  if (why && options_.sink)
    told = about(closable, *why, *why == event_kind::evicted ? severity::debug : severity::info);
  const auto object = table_.begin_close(closable);
  mutex_.unlock();
  if (told) tell(*told);
  auto closed = call_close(object);
  if (!closed) tell_failed_close(about(closable, event_kind::close_failed, severity::failure), closed.error());
  mutex_.lock();
  PINFOLD_ASSERT(closable.now() == entry_state::closing, "no other thread touches an entry that is being closed");
  closed ? table_.finish_close(closable) : table_.quarantine(closable);
  waiting_.notify(&closable);
  waiting_.notify(this);
  return closed;
}

// Closes what the driver opened and nothing refers to yet. Returns false when the driver refuses, after telling the
// sink.
bool engine::close_unpublished(entry& opening, const opened& made) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "its opener takes it back");
  table_.begin_close_unpublished();
  const event failed = about(opening, event_kind::close_failed, severity::failure);
  mutex_.unlock();
  const auto closed = call_close(made.object);
  if (!closed) tell_failed_close(failed, closed.error());
  mutex_.lock();
  table_.finish_close_unpublished(opening, closed.has_value());
  waiting_.notify(this);
  return closed.has_value();
}

result<void> engine::close_queued(std::size_t at_most) noexcept {
  result<void> first;
  for (std::size_t i = 0; i < at_most; ++i) {
    entry* const due = table_.first_due();
    if (due == nullptr) break;
    auto closed = close(*due);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::close_evicting() noexcept {
  result<void> first;
  while (entry* const idle = table_.first_evicting()) {
    auto closed = close(*idle);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine::retry_quarantined() noexcept {
  result<void> first;
  for (std::size_t left = table_.quarantined(); left > 0; --left) {
    entry* const owed = table_.first_quarantined();
    if (owed == nullptr) break;
    if (open_waiter::waits(open_waiters_, *owed)) {  // to read why its open failed; any other pin on it is transient
      table_.move_to_back(*owed);
      continue;
    }
    auto closed = close(*owed);
    if (first && !closed) first = closed;
  }
  return first;
}

}  // namespace pinfold::detail

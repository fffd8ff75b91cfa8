// SPDX-License-Identifier: BSD-3-Clause
// Calling the driver to close, and quarantine.
#include "core/engine_closing.hpp"

namespace pinfold::detail {

// Closes an entry. Tells the sink `why`, unless it is absent because the application asked for the close.
result<void> engine_closing::close(shard& in, entry& closable, std::optional<event_kind> why) noexcept {
  std::optional<event> told;
  if (why && reporter_.is_heard())
    told = core::reporter::about(closable, *why, *why == event_kind::evicted ? severity::debug : severity::info);
  const auto object = in.table.begin_close(closable);
  auto closed = os::unlocked(in.mutex, [&] {
    if (told) reporter_.tell(*told);
    auto done = driver_.close(object, closable.covered());
    if (!done)
      reporter_.tell_failed_close(core::reporter::about(closable, event_kind::close_failed, severity::failure),
                                  done.error());
    return done;
  });
  PINFOLD_ASSERT(closable.now() == entry_state::closing, "no other thread touches an entry that is being closed");
  closed ? in.table.finish_close(closable) : in.table.quarantine(closable);
  if (closed) driver_.count_close();
  in.waiting.notify(&closable);
  changes_.notify();
  return closed;
}

// Closes a registration that was never published. Returns false if the driver refuses, after telling the sink.
bool engine_closing::close_unpublished(shard& in, entry& opening, const opened& made) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.in_driver, "its opener takes it back");
  in.table.begin_close_unpublished();
  const event failed = core::reporter::about(opening, event_kind::close_failed, severity::failure);
  const bool closed = os::unlocked(in.mutex, [&] {
    const auto done = driver_.close(made.object, failed.where);
    if (!done) reporter_.tell_failed_close(failed, done.error());
    return done.has_value();
  });
  in.table.finish_close_unpublished(opening, closed);
  if (closed) driver_.count_close();
  changes_.notify();
  return closed;
}

result<void> engine_closing::close_queued(shard& in, std::size_t at_most) noexcept {
  result<void> first;
  for (std::size_t i = 0; i < at_most; ++i) {
    entry* const due = in.table.first_due();
    if (due == nullptr) break;
    auto closed = close(in, *due);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine_closing::close_evicting(shard& in) noexcept {
  result<void> first;
  while (entry* const idle = in.table.first_evicting()) {
    auto closed = close(in, *idle);
    if (first && !closed) first = closed;
  }
  return first;
}

result<void> engine_closing::retry_quarantined(shard& in, core::deadline until) noexcept {
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

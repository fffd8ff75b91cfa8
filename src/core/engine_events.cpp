// SPDX-License-Identifier: BSD-3-Clause
// Invalidations from monitors: read from the event log, and processed before any entry is handed out. An event may
// concern a million entries, and a request for other memory does not wait for all of them: until all are marked, every
// hit takes the mutex, looks at the pending invalidations, and marks a few entries.
#include "core/engine.hpp"

namespace pinfold::detail {

// Processes every event from before this call, as far as it concerns the request, before it returns. A later event is
// concurrent with the request.
void engine::process_invalidations(const request& what) noexcept {
  const auto known = what_happened();
  while (deal_with_some(what.wanted, known)) {
  }
}

void engine::catch_up_with_everything() noexcept {
  if (view_.current()) return;
  const auto known = what_happened();
  bool left = true;
  while (left) {
    const bool more = deal_with_some({}, known);
    os::scoped_lock guard(mutex_);
    left = more || (!pending_.empty() && unfinished_since_ == core::deadline{});
  }
}

// Returns how far events have come. Puts the kernel's events onto the event log first, so that only the event log has
// to be read.
engine::happened engine::what_happened() const noexcept {
  const auto kernels = monitors_ != nullptr ? monitors_->drain() : 0;
  return {event_log_.generation().load(std::memory_order_acquire), kernels};
}

// Processes some of the pending invalidations. Returns true when the caller has to call it again.
bool engine::deal_with_some(const range& wanted, const happened& known) noexcept {
  core::leased_notices still_held;
  bool more = false;
  {
    os::scoped_lock guard(mutex_);
    invalidated_entries invalidated;
    const auto read = read_log(known.on_event_log);
    const bool clear = invalidate_where(wanted, invalidated);
    invalidate_some(invalidated);
    settle();
    still_held.note(invalidated.all());
    if (read == reading::done && pending_.empty()) say_seen(known);
    more = read == reading::more || !clear;
  }
  tell(still_held);
  return more;
}

engine::reading engine::read_log(std::uint64_t target) noexcept {
  while (static_cast<std::int64_t>(target - cursor_) > 0) {
    if (pending_.full()) {
      pending_.widen();
      return reading::more;
    }
    range gone;
    switch (event_log_.read(cursor_, gone)) {
      case invalidation::read_status::nothing: return reading::done;
      case invalidation::read_status::everything: pending_.add({0, UINTPTR_MAX}); break;
      case invalidation::read_status::unfinished:
        pending_.add({0, UINTPTR_MAX});
        if (!skip_unpublished()) return reading::unfinished;
        break;
      case invalidation::read_status::one:
        unfinished_since_ = {};
        if (!gone.empty()) pending_.add(gone);
    }
  }
  return reading::done;
}

// Returns true when a reserved place on the event log stayed unpublished for too long, and moves past it. Until the
// place is published, no kept entry can be trusted. A writer that died (a vfork child, killed between two instructions)
// must not make that last for ever.
bool engine::skip_unpublished() noexcept {
  constexpr std::chrono::seconds longest{10};
  const auto now = std::chrono::steady_clock::now();
  if (unfinished_since_ == core::deadline{}) unfinished_since_ = now;
  if (now - unfinished_since_ < longest) return false;
  unfinished_since_ = {};
  ++cursor_;
  return true;
}

// Marks the affected entries that could serve a request there. Returns false when `into` has no room for all.
bool engine::invalidate_where(const range& wanted, invalidated_entries& into) noexcept {
  if (wanted.empty() || pending_.empty()) return true;
  return table_.find_overlap({}, wanted, [&](entry& one) {
    mutex_is_held();
    if (!one.findable() || one.hot()->is(record::stale) || !pending_.affects(one)) return false;
    if (into.full()) return true;
    table_.invalidate(one);
    into.add(&one);
    return false;
  }) == nullptr;
}

void engine::invalidate_some(invalidated_entries& into) noexcept {
  pending_.finish([&](core::pending_invalidations::item& known) {
    mutex_is_held();
    into.grow(table_.invalidate_next({}, known.left, into.rest(), known.era));
    return known.left.empty();
  });
}

// Lets hits succeed again without a look at the pending invalidations. The marks come before this store, so a thread
// that reads the new value sees them. The value is the sum of two earlier values: it equals the sum of the present ones
// only if neither has changed.
void engine::say_seen(const happened& known) noexcept {
  PINFOLD_ASSERT(pending_.empty() && table_.settled(), "every entry that an event touches is marked");
  view_.seen.store(cursor_ + known.in_kernel, std::memory_order_release);
  if (pending_.restart()) table_.forget_eras();
}

// Marks an opening entry whose memory went away during the open: what the driver opened may be the old memory.
void engine::doom_if_pending(entry& opening) noexcept {
  const auto known = what_happened();
  while (read_log(known.on_event_log) == reading::more) {
  }
  if (pending_.affects(opening)) table_.invalidate(opening);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Invalidations from monitors: read from the event log, and processed before any entry is handed out. An event may
// concern a million entries, and a request for other memory does not wait for all of them: until all are marked, every
// hit takes the mutex, looks at the pending invalidations, and marks a few entries.
#include "core/engine.hpp"
#include "os/no_cancellation.hpp"

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
    left = more || (pending_shards_.load(std::memory_order_acquire) != 0 && !waits_for_log());
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
  const auto read = read_log(known.on_event_log);
  const bool clear = process_pending(wanted, still_held);
  if (read == reading::done) say_seen(known);
  tell(still_held);
  return read == reading::more || !clear;
}

// Reads the event log, and gives the shards what concerns them.
engine::reading engine::read_log(std::uint64_t target) noexcept {
  constexpr int most_at_once = 32;  // requests for other memory do not wait for more
  os::scoped_lock guard(events_mutex_);
  for (int count = 0; static_cast<std::int64_t>(target - cursor_) > 0; ++count) {
    if (count == most_at_once) return reading::more;
    range gone;
    switch (event_log_.read(cursor_, gone)) {
      case invalidation::read_status::nothing: return reading::done;
      case invalidation::read_status::everything: deliver({0, UINTPTR_MAX}); break;
      case invalidation::read_status::unfinished:
        deliver({0, UINTPTR_MAX});
        if (!skip_unpublished()) return reading::unfinished;
        break;
      case invalidation::read_status::one:
        unfinished_since_ = {};
        if (!gone.empty()) deliver(gone);
    }
  }
  return reading::done;
}

// Makes an invalidation pending in the shards that may have entries there. A shard without a cell that is in use by now
// has none that was claimed before (shard_map.hpp).
void engine::deliver(const range& gone) noexcept {
  PINFOLD_ASSERT(gone.begin < gone.end, "an invalidation has a byte at least");
  saying it(*this, core::said_now::of::gone, {}, gone);
  core::for_each_shard(shards_.map().overlapping(gone), [&](std::size_t number) {
    shard& in = shards_[number];
    os::scoped_lock guard(in.mutex);
    if (watched_ != nullptr) it.before_visit();
    if (in.pending.full()) in.pending.widen();
    in.pending.add(gone);
    pending_shards_.fetch_or(core::shard_set{1} << number, std::memory_order_release);
  });
}

// Processes a few of the pending invalidations, and before that all that concern `wanted`. Returns false when there was
// no room to note all of the latter.
bool engine::process_pending(const range& wanted, core::leased_notices& still_held) noexcept {
  const auto pending = pending_shards_.load(std::memory_order_acquire);
  std::size_t left = core::most_invalidated;
  bool clear = true;
  const auto in_shards = [&](core::shard_set which, auto&& invalidate) {
    core::for_each_shard(which, [&](std::size_t number) {
      if (left == 0) return;
      shard& in = shards_[number];
      os::scoped_lock guard(in.mutex);
      core::invalidated_entries invalidated(left);
      invalidate(in, invalidated);
      tell_driver(in, invalidated);
      settle(in);
      still_held.note(invalidated.all());
      if (is_observed()) note_invalidated(invalidated);
      PINFOLD_ASSERT(invalidated.all().size() <= left, "no more entries are invalidated than there was room for");
      left -= invalidated.all().size();
    });
  };
  in_shards(pending & shards_.map().overlapping(wanted), [&](shard& in, invalidated_entries& into) {
    in.mutex.says_held();
    clear = invalidate_where(in, wanted, into) && clear;
  });
  if (left == 0) return false;
  in_shards(pending, [&](shard& in, invalidated_entries& into) {
    in.mutex.says_held();
    invalidate_some(in, into);
  });
  return clear;
}

bool engine::waits_for_log() noexcept {
  os::scoped_lock guard(events_mutex_);
  return unfinished_since_ != core::deadline{};
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
bool engine::invalidate_where(shard& in, const range& wanted, invalidated_entries& into) noexcept {
  if (wanted.empty() || in.pending.empty()) return true;
  return in.table.find_overlap({}, wanted, [&](entry& one) {
    in.mutex.says_held();
    if (!one.findable() || one.hot()->is(record::stale) || !in.pending.affects(one)) return false;
    if (into.full()) return true;
    in.table.invalidate(one);
    into.add(&one);
    return false;
  }) == nullptr;
}

void engine::invalidate_some(shard& in, invalidated_entries& into) noexcept {
  in.pending.finish([&](core::pending_invalidations::item& known) {
    in.mutex.says_held();
    into.grow(in.table.invalidate_next({}, known.left, into.rest(), known.era));
    return known.left.empty();
  });
  if (!in.pending.empty()) return;
  pending_shards_.fetch_and(~(core::shard_set{1} << in.number), std::memory_order_release);
  if (in.pending.restart()) in.table.forget_eras();
}

// Lets hits succeed again without a look at the pending invalidations, if there are none. The marks come before this
// store, so a thread that reads the new value sees them. The value is the sum of two earlier values: it equals the sum
// of the present ones only if neither has changed. No invalidation becomes pending meanwhile, as that takes the mutex.
void engine::say_seen(const happened& known) noexcept {
  os::scoped_lock guard(events_mutex_);
  if (pending_shards_.load(std::memory_order_acquire) != 0) return;
  if (static_cast<std::int64_t>(known.on_event_log - cursor_) > 0) return;  // it is not published yet
  view_.seen.store(cursor_ + known.in_kernel, std::memory_order_release);
}

// Makes every event from before this call pending, or processed.
void engine::read_all_events() noexcept {
  const no_cancellation guard;
  const auto known = what_happened();
  while (read_log(known.on_event_log) == reading::more) {
  }
}

// Marks an opening entry whose memory went away during the open: what the driver opened may be the old memory. Since
// the driver answered, `read_up_to_now` was called.
void engine::doom_if_gone(shard& in, entry& opening) noexcept {
  if (in.pending.affects(opening)) in.table.invalidate(opening);
}

}  // namespace pinfold::detail

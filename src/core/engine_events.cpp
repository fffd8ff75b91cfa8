// SPDX-License-Identifier: BSD-3-Clause
// Invalidations from monitors: read from the event log, and processed before any entry is handed out. An event may
// concern a million entries, and a request for other memory does not wait until all are marked: until then, every hit
// takes the mutex, looks at the pending invalidations, and marks a few entries.
#include "core/engine_events.hpp"
#include "os/no_cancellation.hpp"

namespace pinfold::detail {

// Processes every event from before this call that concerns the request. A later event is concurrent with the request.
void engine_events::process_invalidations(const request& what) noexcept {
  const auto known = what_happened();
  while (deal_with_some(what.wanted, known)) {
  }
}

void engine_events::catch_up_with_everything() noexcept {
  if (view_.current()) return;
  const auto known = what_happened();
  bool left = true;
  while (left) {
    const bool more = deal_with_some({}, known);
    left = more || (events_.pending() != 0 && !events_.waits_for_writer());
  }
}

// Returns the counts of events so far. Writes the kernel's events to the event log first, so that only the event log
// has to be read.
engine_events::happened engine_events::what_happened() const noexcept {
  const auto kernels = monitors_.drain();
  return {event_log_.generation().load(std::memory_order_acquire), kernels};
}

// Processes some of the pending invalidations. Returns true when the caller has to call it again.
bool engine_events::deal_with_some(const range& wanted, const happened& known) noexcept {
  core::leased_notices still_held;
  const auto read = read_log(known.on_event_log);
  const bool clear = process_pending(wanted, still_held);
  if (read == reading::done) events_.store_seen(known, view_.seen);
  reporter_.tell(still_held);
  return read == reading::more || !clear;
}

// Reads the event log, and delivers each event to the shards that it concerns.
engine_events::reading engine_events::read_log(std::uint64_t target) noexcept {
  return events_.read(target, [this](const range& gone) { deliver(gone); });
}

// Makes an invalidation pending in the shards that may have entries there. A shard without a cell there in use by now
// has no entry that was claimed before (shard_map.hpp).
void engine_events::deliver(const range& gone) noexcept {
  PINFOLD_ASSERT(gone.begin < gone.end, "an invalidation has a byte at least");
  core::quiesced::withdrawing it(quiesced_, core::withdrawal::of::gone, {}, gone);
  for (shard& in : shards_.of(shards_.map().overlapping(gone))) {
    os::scoped_lock guard(in.mutex);
    if (watched_ != nullptr) it.before_visit();
    if (in.pending.full()) in.pending.widen();
    in.pending.add(gone);
    events_.add_pending(in.number);
  }
}

// Processes all pending invalidations that concern `wanted`, and then a few others. Returns false if there was no room
// to note all of the former.
bool engine_events::process_pending(const range& wanted, core::leased_notices& still_held) noexcept {
  const auto pending = events_.pending();
  std::size_t left = core::most_invalidated;
  bool clear = true;
  const auto in_shards = [&](core::shard_set which, auto&& invalidate) {
    for (shard& in : shards_.of(which)) {
      if (left == 0) return;
      os::scoped_lock guard(in.mutex);
      core::invalidated_entries invalidated(left);
      invalidate(in, invalidated);
      tell_driver(in, invalidated);
      settle(in);
      still_held.note(invalidated.all());
      if (reporter_.is_observed()) reporter_.note_invalidated(invalidated);
      PINFOLD_ASSERT(invalidated.all().size() <= left, "no more entries are invalidated than there was room for");
      left -= invalidated.all().size();
    }
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

// Marks the affected entries that could serve a request there. Returns false when `into` has no room for all.
bool engine_events::invalidate_where(shard& in, const range& wanted, invalidated_entries& into) noexcept {
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

void engine_events::invalidate_some(shard& in, invalidated_entries& into) noexcept {
  in.pending.finish([&](core::pending_invalidations::item& known) {
    in.mutex.says_held();
    into.grow(in.table.invalidate_next({}, known.left, into.rest(), known.era));
    return known.left.empty();
  });
  if (!in.pending.empty()) return;
  events_.remove_pending(in.number);
  if (in.pending.restart()) in.table.forget_eras();
}

// Makes every event from before this call pending, or processed.
void engine_events::read_all_events() noexcept {
  const no_cancellation guard;
  const auto known = what_happened();
  while (read_log(known.on_event_log) == reading::more) {
  }
}

// Marks an opening entry whose memory went away during the open: the driver may have opened the old memory. Requires a
// call of `read_up_to_now` since the driver answered.
void engine_events::doom_if_gone(shard& in, entry& opening) noexcept {
  if (in.pending.affects(opening)) in.table.invalidate(opening);
}

}  // namespace pinfold::detail

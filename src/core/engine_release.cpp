// SPDX-License-Identifier: BSD-3-Clause
// Releases that find their entry not hittable, or a thread that waits for them.
#include "core/engine.hpp"

namespace pinfold::detail {

namespace {

bool home_of_this_process(const index::control_block& control) noexcept {
  const auto* event_log = invalidation::event_log::if_there();
  return event_log != nullptr && event_log->process() == control.process;
}

}  // namespace

// The call may be late: if the entry, the engine or even the page has moved on, there is nothing to do.
result<void> engine::finish_release(const record* given_back, asked_by caller, std::uint32_t cache) noexcept {
  auto& page = index::record_page::of(given_back);
  index::control_block* control = page.owner.load(std::memory_order_acquire);
  if (control == nullptr || !home_of_this_process(*control)) return {};
  engine* last = nullptr;
  result<void> closed;
  {
    os::scoped_lock guard(control->guard);
    shard* in = control->home;
    if (in == nullptr || page.owner.load(std::memory_order_relaxed) != control) return {};
    in->mutex.says_held();
    engine& home = in->engine;
    home.changes_.notify();  // threads that wait for room or in a conflict look again
    const bool later = home.defers_closes() || !home.may_close(caller, cache);
    entry& freed = index::record_page::entry_of(given_back);
    if (cache == by_lease && freed.in == index::list_id::leased) in->table.put_back(freed);  // even if leases remain
    if (!in->orphaned) closed = home.unpinned(*in, freed, later);
    last = home.leave_if_last(*in);
  }
  destroy(last);
  return closed;
}

// Counts the new pin in the entry, under the shard's mutex: otherwise a thread that sums the entry's pins could miss a
// pin that moves to a place that the thread has already read.
pin engine::pin_again(pin held) noexcept {
  const record* one = record_of(held);
  index::control_block* control = index::record_page::of(one).owner.load(std::memory_order_acquire);
  const auto count = [one] { index::record_page::entry_of(one).own_pins().fetch_add(1, std::memory_order_seq_cst); };
  if (control == nullptr || !home_of_this_process(*control)) {
    count();
  } else {
    os::scoped_lock guard(control->guard);
    count();
  }
  return reinterpret_cast<pin>(one) | in_entry;
}

// Returns whether the release of a pin may call the driver. A `find` may not (R48). Nor may a failed hit of another
// cache, whose thread may never have used this one (R57): its hint was a record that belongs to this cache by now.
bool engine::may_close(asked_by caller, std::uint32_t cache) const noexcept {
  return caller == asked_by::acquire && (cache == by_lease || cache == number_);
}

result<void> engine_closing::unpin(shard& in, entry& held) noexcept {
  held.own_pins().fetch_sub(1, std::memory_order_seq_cst);
  changes_.notify();
  return unpinned(in, held, defers_closes());
}

// Does what is due when an entry has no pin left; queues the close if it is to be done `later`. Every thread that gives
// a pin back calls this, or has seen that it need not.
result<void> engine_closing::unpinned(shard& in, entry& freed, bool later) noexcept {
  PINFOLD_ASSERT(in.table.settled(), "pins were counted after a barrier");
  if (freed.in == index::list_id::leased && freed.pins() <= 0) in.table.put_back(freed);
  if (freed.hot()->is(record::hittable)) return {};
  if (freed.pins() > 0) {
    if (freed.in != index::list_id::reusable) note_pinned(in, freed);
    return {};
  }
  switch (freed.now()) {
    case entry_state::live:
      if (in.table.kept(freed)) return {};
      if (!later) return close(in, freed);
      in.table.retire(freed);
      settle(in);
      return {};
    case entry_state::draining:
      in.waiting.notify(&freed);
      if (freed.in == index::list_id::queued) return {};
      if (!later) return close(in, freed);
      in.table.queue(freed);
      closes_are_due();
      return {};
    case entry_state::failed: in.table.recycle(freed); return {};
    default: in.waiting.notify(&freed); return {};  // if it is quarantined, a thread can retry its close from now on
  }
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Lists the registrations that `quiesce` closes, so that `restore` can register them again.
#include "core/engine_events.hpp"
#include "core/ticks.hpp"

#include <utility>

namespace pinfold::detail {

// Returns false, among others, for an entry that a pending invalidation affects.
bool engine_events::worth_remembering(const shard& in, const entry& one) noexcept {
  const bool open = one.now() == entry_state::live || one.now() == entry_state::evicting;
  return open && !one.hot()->is(record::stale) && !one.unshared && !one.bypass && !in.pending.affects(one);
}

// Makes the caller the only thread that quiesces, and waits for opens by `restore`, which would be open afterwards.
result<void> engine_events::begin_quiescing() noexcept {
  const deadlines until(options_);
  change_waiter self(changes_);
  bool mine = false;
  while (!quiesced_.begin(mine)) {
    if (wait_for_change(self, until.others())) continue;
    if (mine) quiesced_.end();
    return fail(errc::timed_out, "another quiesce, or an open by a restoration, did not end in time");
  }
  return {};
}

// Throws std::bad_alloc. The list has room before the mutex is taken: nothing is allocated under it.
void engine_events::list_what_is_open(core::remembered_list& listed) const {
  const auto now = core::ticks();
  for (const shard& in : shards_) {
    for (std::size_t needed = 0;;) {
      listed.reserve(needed);
      os::scoped_lock guard(in.mutex);
      needed = in.table.size();
      if (needed > listed.room()) continue;
      in.table.for_each([&](const entry& one) {
        in.mutex.says_held();
        if (!worth_remembering(in, one)) return;
        const bool visited = one.hot()->visited.load(std::memory_order_relaxed) != 0;
        listed.add({one.peer(), one.covered(), one.access, one.persistent, visited, one.hits(), now - one.opened_at},
                   driver_.token_of(*one.hot()));
      });
      break;
    }
  }
}

// Lists the open registrations; from now on, withdrawals of memory concern the list. Throws std::bad_alloc, and changes
// nothing then.
void engine_events::begin_remembering(core::being_closed& mine) {
  quiesced_.begin_listing(mine);
  try {
    list_what_is_open(mine.list);
  } catch (const std::bad_alloc&) {
    quiesced_.cancel_listing(mine);
    throw;
  }
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Events for the application's sink. Called without the mutex.
#include "core/engine.hpp"

namespace pinfold::detail {

// Requires the mutex, or that the calling thread is opening or closing the entry.
event engine::about(const entry& one, event_kind kind, severity level) const noexcept {
  event what{kind, level};
  what.peer = one.peer();
  what.where = one.covered();
  what.leases = pins_of(one);
  what.owner = one.owner();
  return what;
}

void engine::tell(event what) noexcept {
  if (silent_.load(std::memory_order_relaxed)) return;
  if (is_observed()) note(what);
  if (!options_.sink) return;
  what.cache = options_.name.c_str();
  try {
    options_.sink(what);
  } catch (...) {  // an exception of the sink must not reach a destructor; it is counted
    counters_.add(core::shared_counter::sink_failures);
  }
}

void engine::tell(const core::leased_notices& notices) noexcept {
  for (const auto& one : notices.all()) {
    event what{event_kind::invalidated_while_leased, severity::warning};
    what.peer = one.peer;
    what.where = one.where;
    what.leases = one.leases;
    what.owner = one.owner;
    tell(what);
  }
}

void engine::tell_failed_close(event failed, const error& why) noexcept {
  failed.cause = &why;
  tell(failed);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Compares registrations that are handed out with the kernel's own account of their pages: for debugging, and for CI.
#include "core/engine_requests.hpp"

#include <cstdio>
#include <new>
#include <string>

namespace pinfold::detail {

bool engine_requests::passes_audit(const grant& granted) noexcept {
  if (!audit_ || !audit_->due()) return true;
  counters_.add(core::shared_counter::audits);
  const record* one = record_of(granted.held);
  if (audit_->same(one, one->covered())) return true;
  counters_.add(core::shared_counter::failed_audits);
  tell_failed_audit(index::record_page::entry_of(one));
  return false;
}

// The entry is pinned, so that it stays the same registration; other threads may change its state.
void engine_requests::tell_failed_audit(const entry& found) noexcept {
  event what = [&] {
    os::scoped_lock guard(index::record_page::of(&found).owner.load(std::memory_order_acquire)->guard);
    return core::reporter::about(found, event_kind::audit_failed, severity::failure);
  }();
  try {
    const std::string history =
        "other pages than were registered are mapped at this range: " + std::to_string(found.hits()) +
        " hits sampled, monitors: " + monitors_.text();
    what.text = history.c_str();
    reporter_.tell(what);
  } catch (const std::bad_alloc&) {  // the failure is counted already
    reporter_.tell(what);
  }
}

// Never hands out a registration that fails the audit: invalidates it, and retries the request.
result<grant> engine_requests::acquire_audited(const request& what) noexcept {
  for (int tries = 0; tries < 3; ++tries) {
    auto granted = grant_for(what);
    if (!granted || passes_audit(*granted)) return granted;
    invalidate(what.peer, record_of(granted->held)->covered());
    give_up(granted->held, asked_by::acquire, number_);
  }
  return fail(errc::driver_error, "the pages changed during every attempt to register them");
}

grant engine_requests::find_audited(const request& what) noexcept {
  const auto found = find_any(what);
  if (found.held == 0 || passes_audit(found)) return found;
  invalidate(what.peer, record_of(found.held)->covered());
  give_up(found.held, asked_by::find, number_);
  return {};
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// The requests of caches: timed, traced or audited if the options say so.
#include "core/engine_requests.hpp"
#include "core/open_watch.hpp"

namespace pinfold::detail {

result<grant> engine_requests::acquire_observed(const request& what) noexcept {
  return reporter_.times_opens() ? acquire_traced(what) : acquire_audited(what);
}

result<grant> engine_requests::acquire_traced(const request& what) noexcept {
  const auto start = core::open_watch::now(reporter_.is_observed());
  const core::open_watch watch;
  auto granted = audit_ ? acquire_audited(what) : grant_for(what);
  if (options_.trace_requests) tell_request(what, granted, watch.spent());
  if (start != core::open_watch::time_point{} && (!granted || watch.spent().count() > 0))
    reporter_.note_request(start, watch.spent(), what.wanted, granted);
  return granted;
}

grant engine_requests::find(const request& what) noexcept { return audit_ ? find_audited(what) : find_any(what); }

void engine_requests::tell_request(const request& what, const result<grant>& granted,
                                   std::chrono::nanoseconds opened_for) noexcept {
  event asked{event_kind::requested, severity::debug};
  asked.peer = what.peer;
  asked.where = what.wanted;
  if (granted) asked.registered = record_of(granted->held)->covered();
  if (!granted) asked.cause = &granted.error();
  asked.hit = granted && opened_for.count() == 0;
  asked.opened_for = opened_for;
  reporter_.tell(asked);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Events that a cache reports to the application while it works: one callback for log lines, faults and life events.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace pinfold {

/// The kind of an event.
enum class event_kind : std::uint8_t {
  evicted,                   ///< an idle entry is closed to make room
  replaced,                  ///< a token differed: the exporter reallocated, the entry is stale
  conflict,                  ///< an idle entry is closed because the driver refused an overlapping open
  invalidated_while_leased,  ///< memory went away under a lease (R49); `owner` is the thread that opened the entry
  close_failed,              ///< the driver refused a close; the entry is in quarantine and will be retried
  leases_outlive_cache,      ///< the drain time-out passed at destruction with `leases` still out
  statistics,                ///< the line requested with `cache_options::statistics_at_exit`, in `text`
  audit_failed,              ///< the pages behind an entry are not the registered ones; `text` has the entry's history
  closes_outlive_cache,      ///< the drain time-out passed at destruction with another thread's close in the driver
  requested,                 ///< an acquire succeeded, or failed with `cause`; only with
                             ///< `cache_options::trace_requests`
  not_kept,                  ///< registered for one lease only: `cause` says why a monitor cannot watch the memory
  monitor_degraded,        ///< a monitor failed, or works again after a failure: `text` says which, and why. The cache
                           ///< invalidated all it kept, and keeps nothing while one of its monitors does not work
  waits_for_node_budget,   ///< a request begins to wait for room in the node's budget: `text` has the numbers
  refused_by_node_budget,  ///< a request got no room in the node's budget: `text` has the numbers
};

/// The severity of an event, from the least on.
enum class severity : std::uint8_t { debug, info, warning, failure };

/// One event. Valid during the callback only.
struct event {
  event_kind kind;               ///< what happened
  severity level;                ///< how bad it is
  const char* cache = "";        ///< the cache's name from its options
  peer_id peer{};                ///< the exporter of imported memory
  range where{};                 ///< the memory
  std::uint64_t leases = 0;      ///< leases out on the entry, or on the whole cache
  std::int32_t owner = 0;        ///< kernel thread id that opened the entry, 0 when unknown
  const error* cause = nullptr;  ///< the driver's failure, when there is one
  const char* text = "";         ///< a ready-made line, where the kind says so

  // Of `requested`, where `where` is the requested range:
  range registered{};                      ///< the registration that serves it
  bool hit = false;                        ///< this request did not call the registrar
  std::chrono::nanoseconds opened_for{0};  ///< time in the registrar's open, refused calls included; 0 for a hit
};

/// The application's callback for events. Runs on the thread that caused the event, without a lock, possibly on several
/// threads at once. The callback may read the cache's statistics, call `dump` and `invalidate`. It must not acquire,
/// release or flush: these could wait for the very call that reports the event. The cache catches and counts exceptions
/// (`statistics::sink_failures`).
using event_sink = std::function<void(const event&)>;

/// Returns the kind's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(event_kind kind) noexcept;

/// Returns the event as one line of text. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string describe(const event& what);

/// Returns a sink that writes events of severity `least` and above to standard error, one line each.
[[nodiscard]] PINFOLD_EXPORT event_sink log_to_stderr(severity least = severity::warning);

}  // namespace pinfold

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a cache tells its owner while it works: one callback for log lines, faults and life events.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace pinfold {

/// What happened.
enum class event_kind : std::uint8_t {
  evicted,                   ///< an idle entry is closed to make room
  replaced,                  ///< a token differed: the exporter reallocated, the entry is stale
  conflict,                  ///< an idle entry is closed because the driver refused an overlapping open
  invalidated_while_leased,  ///< memory went away under a lease (R49); `owner` is the thread that opened it
  close_failed,              ///< the driver refused a close; the entry is in quarantine and will be retried
  leases_outlive_cache,      ///< the drain time-out passed at destruction with `leases` still out
  statistics,                ///< the line asked for with `cache_options::statistics_at_exit`, in `text`
  audit_failed,              ///< other pages than were registered are behind an entry; `text` has its history
  closes_outlive_cache,      ///< the drain time-out passed at destruction with another thread's close in the driver
  requested,                 ///< an acquire succeeded; only with `cache_options::trace_requests`
  not_kept,                  ///< registered for one lease only: `cause` says why a monitor cannot watch the memory
  monitor_degraded,          ///< a monitor failed, or works again after that: `text` says which, and why. All that the
                             ///< cache kept was invalidated; it keeps nothing while one of its monitors does not work
};

/// How much it matters.
enum class severity : std::uint8_t { debug, info, warning, failure };

/// One event. Valid during the callback only.
struct event {
  event_kind kind;
  severity level;
  const char* cache = "";  ///< the cache's name from its options
  peer_id peer{};
  range where{};
  std::uint64_t leases = 0;      ///< leases out on the entry, or on the whole cache
  std::int32_t owner = 0;        ///< kernel thread id that opened the entry, 0 when unknown
  const error* cause = nullptr;  ///< the driver's failure, when there is one
  const char* text = "";         ///< a ready-made line, where the kind says so

  // Of `requested`, where `where` is the range that was asked for:
  range registered{};                      ///< the registration that serves it
  bool hit = false;                        ///< the registrar was not asked by this request
  std::chrono::nanoseconds opened_for{0};  ///< what the registrar's open took, its refusals included; 0 for a hit
};

/// Called on the thread that caused the event, with no lock held, possibly on several threads at once. It may read the
/// cache's statistics, dump it and invalidate, but not acquire, release or flush: that could wait for the very call
/// that it is told about. What it throws is caught and counted (`statistics::sink_failures`).
using event_sink = std::function<void(const event&)>;

/// The kind's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(event_kind kind) noexcept;

/// The event as one line of text. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string describe(const event& what);

/// A sink that writes events of at least `least` to standard error, one line each.
[[nodiscard]] PINFOLD_EXPORT event_sink log_to_stderr(severity least = severity::warning);

}  // namespace pinfold

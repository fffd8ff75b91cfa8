// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counters of a cache, and its entries.
#pragma once

#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace pinfold {

/// Counters of one cache (R43). Reading them stops no thread: each value is right by itself, and all values agree once
/// no call is in progress. Then `acquires = hits + misses + failed_acquires`, `misses` is the sum of `misses_cold`,
/// `misses_invalidated`, `misses_access`, `misses_extent` and `misses_evicted`, and `opens = closes + open`.
struct statistics {
  // Look-ups. The counters down to `find_misses`, except `expired`, match Open MPI's rgpusm cache.
  std::uint64_t hits = 0;   ///< acquires served by an existing registration, or by one that another thread was opening
  std::uint64_t valid = 0;  ///< look-ups with an equal token
  std::uint64_t invalid = 0;      ///< look-ups with a different token: the entry turned stale
  std::uint64_t misses = 0;       ///< acquires that opened a registration of their own
  std::uint64_t evicted = 0;      ///< idle entries closed to make room
  std::uint64_t expired = 0;      ///< imports closed because no lease used them for `idle_timeout`
  std::uint64_t found = 0;        ///< `find` calls that returned a lease
  std::uint64_t find_misses = 0;  ///< `find` calls that returned none

  std::uint64_t acquires = 0;         ///< calls of acquire
  std::uint64_t failed_acquires = 0;  ///< of those, the ones that returned an error

  // Misses by what was registered before. The cache remembers the last few hundred entries only; misses on older ones
  // count as cold.
  std::uint64_t misses_cold = 0;         ///< the memory was not registered, as far as the cache remembers
  std::uint64_t misses_invalidated = 0;  ///< the memory was registered and turned stale
  std::uint64_t misses_access = 0;       ///< the memory is registered, with less access
  std::uint64_t misses_extent = 0;       ///< the request overlaps a registration that does not cover it
  std::uint64_t misses_evicted = 0;      ///< the registration was closed to make room or after `idle_timeout`

  // The driver.
  std::uint64_t opens = 0;          ///< successful opens
  std::uint64_t closes = 0;         ///< successful closes
  std::uint64_t failed_opens = 0;   ///< driver calls that failed, retried ones included
  std::uint64_t failed_closes = 0;  ///< closes that the driver refused, retried ones included
  std::uint64_t conflicts = 0;      ///< idle entries closed because the driver answered *already mapped*
  std::uint64_t bypasses = 0;       ///< registrations opened outside the budget

  /// Registrations for one lease only, because not every monitor of the cache would report that the memory goes (R33,
  /// R53).
  std::uint64_t unmonitored = 0;
  std::uint64_t file_backed = 0;  ///< of those, the ones on files that another process could truncate (R30)

  std::uint64_t audits = 0;  ///< comparisons of the pages behind a registration (`audit_one_in`)

  // Trouble.
  std::uint64_t monitor_failures = 0;          ///< failures of a monitor of this cache (`monitor_degraded`)
  std::uint64_t failed_audits = 0;             ///< audits that found other pages: no monitor reported a change
  std::uint64_t invalidated_while_leased = 0;  ///< entries whose memory went away under a lease
  std::uint64_t sink_failures = 0;             ///< exceptions that the event sink threw

  std::chrono::nanoseconds waited{0};  ///< time spent waiting for other threads, summed over all callers

  // Now, and at most.
  std::uint64_t open = 0;          ///< registrations open in the driver, quarantined ones included
  std::uint64_t bytes_now = 0;     ///< bytes that count against the budget
  std::uint64_t entries_now = 0;   ///< entries that count against the budget
  std::uint64_t peak_bytes = 0;    ///< highest `bytes_now`
  std::uint64_t peak_entries = 0;  ///< highest `entries_now`
  std::uint64_t leases_now = 0;    ///< leases that are out
  std::uint64_t peak_leases = 0;   ///< highest value that any reading of the statistics has seen
  std::uint64_t quarantined = 0;   ///< entries whose close failed and is still owed
  std::uint64_t bypass_bytes = 0;  ///< bytes registered outside the budget now

  // Queues, now.
  std::uint64_t requests_waiting = 0;  ///< calls that wait for another thread, or for room
  std::uint64_t closes_due = 0;        ///< unleased registrations that no request can get any more, not closed yet
};

/// Returns the counters as one line of `name=value` pairs. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string describe(const statistics& counters);

/// States of an entry that `dump` can show; `docs/understand/protocol.md` has the transitions.
enum class entry_state : std::uint8_t { free, opening, failed, live, evicting, draining, closing, quarantined };

/// Returns the state's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(entry_state state) noexcept;

/// One entry as `dump()` lists it (R45).
struct entry_info {
  peer_id peer{};                         ///< the exporter of imported memory
  range covered{};                        ///< the peer's addresses for imported memory, this process's otherwise
  std::uint64_t bytes = 0;                ///< bytes that the entry counts against the budget
  const char* kind = "";                  ///< the registrar's name
  entry_state state = entry_state::free;  ///< as `docs/understand/protocol.md` names it
  std::uint64_t leases = 0;               ///< leases on it
  std::uint64_t hits = 0;                 ///< sampled, one in 512, unless `entry_statistics`
  bool bypass = false;                    ///< outside the budget, closed by its last release
  std::chrono::nanoseconds age{0};        ///< time since the open, to about 20 ms
  std::int32_t owner = 0;                 ///< kernel id of the thread that opened it
};

}  // namespace pinfold

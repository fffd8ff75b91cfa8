// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a cache has done so far, and what it holds now.
#pragma once

#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace pinfold {

/// Counters of one cache (R43). Read without stopping anyone: each value is right by itself, and all of them agree once
/// no call is in progress. What then holds: `acquires = hits + misses + failed_acquires`,
/// `misses = cold + invalidated + extent + evicted + rights misses`, `opens = closes + open_now`.
struct statistics {
  // Look-ups. The first seven are those that Open MPI's rgpusm cache kept.
  std::uint64_t hits = 0;     ///< acquires answered by a registration that was there, or being opened by another thread
  std::uint64_t valid = 0;    ///< look-ups whose token was equal
  std::uint64_t invalid = 0;  ///< look-ups whose token differed: the entry turned stale
  std::uint64_t misses = 0;   ///< acquires that opened a registration of their own
  std::uint64_t evicted = 0;  ///< idle entries closed to make room
  std::uint64_t expired = 0;  ///< imports closed as no lease used them for `idle_timeout`
  std::uint64_t found = 0;    ///< `find` calls that returned a lease
  std::uint64_t notfound = 0;  ///< `find` calls that returned none

  std::uint64_t acquires = 0;         ///< calls of acquire
  std::uint64_t failed_acquires = 0;  ///< of those, the ones that returned an error

  // Misses by what was there before. "Before" is remembered for the last few hundred entries only; older ones are cold.
  std::uint64_t misses_cold = 0;
  std::uint64_t misses_invalidated = 0;  ///< was registered, turned stale
  std::uint64_t misses_rights = 0;       ///< is registered, with fewer rights
  std::uint64_t misses_extent = 0;       ///< overlaps something registered, which does not cover it
  std::uint64_t misses_evicted = 0;      ///< was registered, closed to make room or after `idle_timeout`

  // The driver.
  std::uint64_t opens = 0;         ///< successful opens
  std::uint64_t closes = 0;        ///< successful closes
  std::uint64_t failed_opens = 0;  ///< driver calls that failed, retried ones included
  std::uint64_t failed_closes = 0;
  std::uint64_t conflicts = 0;  ///< idle entries closed because the driver said already mapped
  std::uint64_t bypasses = 0;   ///< registrations opened outside the budget

  /// Registered for one lease only, as not every monitor of the cache would tell when the memory goes (R33, R53).
  std::uint64_t unmonitored = 0;
  std::uint64_t file_backed = 0;  ///< of those, the ones where another process could truncate the file behind it (R30)

  std::uint64_t audits = 0;  ///< times that the pages behind a registration were compared (`audit_one_in`)

  // Trouble.
  std::uint64_t monitor_failures = 0;  ///< times that a monitor of this cache stopped working (`monitor_degraded`)
  std::uint64_t failed_audits = 0;     ///< of those, the ones that found other pages: something was not monitored
  std::uint64_t invalidated_while_leased = 0;
  std::uint64_t sink_failures = 0;  ///< exceptions that the event sink threw

  std::chrono::nanoseconds waited{0};  ///< time spent waiting for other threads, summed over all callers

  // Now, and at most.
  std::uint64_t open_now = 0;     ///< registrations open in the driver, quarantined ones included
  std::uint64_t bytes_now = 0;    ///< bytes that count against the budget
  std::uint64_t entries_now = 0;  ///< entries that count against the budget
  std::uint64_t bytes_most = 0;
  std::uint64_t entries_most = 0;
  std::uint64_t leases_now = 0;
  std::uint64_t leases_most = 0;   ///< highest value that any reading of the statistics has seen
  std::uint64_t quarantined = 0;   ///< entries whose close failed and is still owed
  std::uint64_t bypass_bytes = 0;  ///< bytes registered outside the budget now
};

/// The counters as one line of `name=value` pairs. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string describe(const statistics& counters);

/// States of an entry that `dump` can show; `docs/protocol.md` has the transitions.
enum class entry_state : std::uint8_t { free, opening, failed, live, evicting, draining, closing, quarantined };

/// The state's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(entry_state state) noexcept;

/// One entry as `dump()` lists it (R45).
struct entry_info {
  peer_id peer{};
  range covered{};          ///< addresses in the key's own address space
  std::uint64_t bytes = 0;  ///< what the entry counts against the budget
  const char* kind = "";    ///< the registrar's name
  entry_state state = entry_state::free;
  std::uint64_t leases = 0;
  std::uint64_t hits = 0;           ///< sampled, one in 512, unless `entry_statistics`
  bool bypass = false;              ///< outside the budget, closed by its last release
  std::chrono::nanoseconds age{0};  ///< since it was opened, to about 20 ms
  std::int32_t owner = 0;           ///< kernel thread id that opened it
};

}  // namespace pinfold

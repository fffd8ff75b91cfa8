// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The counters of a cache by name: what they count, and where a statistics page has them.
#pragma once

#include <pinfold/observation/layout.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::observation {

/// A counter only grows; a gauge has a present value; a peak is the highest value of a gauge.
enum class counter_kind : std::uint8_t { counter, gauge, peak };

/// What a counter's value is in; `none` for plain numbers.
enum class counter_unit : std::uint8_t { none, bytes, nanoseconds };

/// One counter: its place in `cache_slot::counters` is its place in `counters`.
struct counter_description {
  const char* name;                   ///< as the field of `statistics`
  counter_kind kind;                  ///< how its value changes
  counter_unit unit;                  ///< what its value is in
  std::uint64_t statistics::* field;  ///< null for `waited`, which is no number
  const char* help;                   ///< a sentence without its full stop
};

/// All counters. Later releases append.
inline constexpr std::array counters{
    counter_description{"acquires", counter_kind::counter, counter_unit::none, &statistics::acquires, "Acquires"},
    counter_description{"hits", counter_kind::counter, counter_unit::none, &statistics::hits,
                        "Acquires served by an existing registration"},
    counter_description{"misses", counter_kind::counter, counter_unit::none, &statistics::misses,
                        "Acquires that opened a registration"},
    counter_description{"failed_acquires", counter_kind::counter, counter_unit::none, &statistics::failed_acquires,
                        "Acquires that returned an error"},
    counter_description{"misses_cold", counter_kind::counter, counter_unit::none, &statistics::misses_cold,
                        "Misses on memory that was not registered before"},
    counter_description{"misses_invalidated", counter_kind::counter, counter_unit::none,
                        &statistics::misses_invalidated, "Misses on memory whose registration turned stale"},
    counter_description{"misses_access", counter_kind::counter, counter_unit::none, &statistics::misses_access,
                        "Misses on memory that is registered with less access"},
    counter_description{"misses_extent", counter_kind::counter, counter_unit::none, &statistics::misses_extent,
                        "Misses that overlap a registration which does not cover them"},
    counter_description{"misses_evicted", counter_kind::counter, counter_unit::none, &statistics::misses_evicted,
                        "Misses on memory whose registration was evicted or expired"},
    counter_description{"valid", counter_kind::counter, counter_unit::none, &statistics::valid,
                        "Look-ups with an equal token"},
    counter_description{"invalid", counter_kind::counter, counter_unit::none, &statistics::invalid,
                        "Look-ups with a different token: stale imports that were not handed out"},
    counter_description{"found", counter_kind::counter, counter_unit::none, &statistics::found,
                        "Calls of find that returned a lease"},
    counter_description{"find_misses", counter_kind::counter, counter_unit::none, &statistics::find_misses,
                        "Calls of find that returned none"},
    counter_description{"evicted", counter_kind::counter, counter_unit::none, &statistics::evicted,
                        "Idle registrations closed to make room"},
    counter_description{"expired", counter_kind::counter, counter_unit::none, &statistics::expired,
                        "Idle imports closed after idle_timeout"},
    counter_description{"opens", counter_kind::counter, counter_unit::none, &statistics::opens,
                        "Successful opens of the driver"},
    counter_description{"closes", counter_kind::counter, counter_unit::none, &statistics::closes,
                        "Successful closes of the driver"},
    counter_description{"failed_opens", counter_kind::counter, counter_unit::none, &statistics::failed_opens,
                        "Opens that the driver refused, retried ones included"},
    counter_description{"failed_closes", counter_kind::counter, counter_unit::none, &statistics::failed_closes,
                        "Closes that the driver refused, retried ones included"},
    counter_description{"conflicts", counter_kind::counter, counter_unit::none, &statistics::conflicts,
                        "Idle registrations closed because the driver answered already mapped"},
    counter_description{"bypasses", counter_kind::counter, counter_unit::none, &statistics::bypasses,
                        "Registrations opened outside the budget"},
    counter_description{"unmonitored", counter_kind::counter, counter_unit::none, &statistics::unmonitored,
                        "Registrations for one lease only, because a monitor would not report that the memory goes"},
    counter_description{"file_backed", counter_kind::counter, counter_unit::none, &statistics::file_backed,
                        "Registrations for one lease only of files that another process could truncate"},
    counter_description{"audits", counter_kind::counter, counter_unit::none, &statistics::audits,
                        "Comparisons of the pages behind a registration"},
    counter_description{"failed_audits", counter_kind::counter, counter_unit::none, &statistics::failed_audits,
                        "Audits that found other pages"},
    counter_description{"monitor_failures", counter_kind::counter, counter_unit::none, &statistics::monitor_failures,
                        "Failures of a monitor"},
    counter_description{"invalidated_while_leased", counter_kind::counter, counter_unit::none,
                        &statistics::invalidated_while_leased, "Registrations whose memory went away under a lease"},
    counter_description{"sink_failures", counter_kind::counter, counter_unit::none, &statistics::sink_failures,
                        "Exceptions that the event sink threw"},
    counter_description{"waited", counter_kind::counter, counter_unit::nanoseconds, nullptr,
                        "Time that requests waited for other threads"},
    counter_description{"open", counter_kind::gauge, counter_unit::none, &statistics::open,
                        "Registrations open in the driver"},
    counter_description{"bytes_now", counter_kind::gauge, counter_unit::bytes, &statistics::bytes_now,
                        "Bytes that count against the budget"},
    counter_description{"entries_now", counter_kind::gauge, counter_unit::none, &statistics::entries_now,
                        "Registrations that count against the budget"},
    counter_description{"peak_bytes", counter_kind::peak, counter_unit::bytes, &statistics::peak_bytes,
                        "Highest bytes_now"},
    counter_description{"peak_entries", counter_kind::peak, counter_unit::none, &statistics::peak_entries,
                        "Highest entries_now"},
    counter_description{"leases_now", counter_kind::gauge, counter_unit::none, &statistics::leases_now,
                        "Leases that are out"},
    counter_description{"peak_leases", counter_kind::peak, counter_unit::none, &statistics::peak_leases,
                        "Highest leases_now that a reading saw"},
    counter_description{"quarantined", counter_kind::gauge, counter_unit::none, &statistics::quarantined,
                        "Registrations that the driver refused to close"},
    counter_description{"bypass_bytes", counter_kind::gauge, counter_unit::bytes, &statistics::bypass_bytes,
                        "Bytes registered outside the budget"},
    counter_description{"requests_waiting", counter_kind::gauge, counter_unit::none, &statistics::requests_waiting,
                        "Requests that wait for another thread, or for room"},
    counter_description{"closes_due", counter_kind::gauge, counter_unit::none, &statistics::closes_due,
                        "Registrations of no use to requests that are not closed yet"},
};
static_assert(counters.size() <= most_counters);

/// Returns the values in the order of `counters`.
[[nodiscard]] constexpr std::array<std::uint64_t, most_counters> values_of(const statistics& from) noexcept {
  std::array<std::uint64_t, most_counters> values{};
  for (std::size_t i = 0; i < counters.size(); ++i)
    values[i] =
        counters[i].field != nullptr ? from.*counters[i].field : static_cast<std::uint64_t>(from.waited.count());
  return values;
}

/// Returns the statistics that values in the order of `counters` are.
[[nodiscard]] constexpr statistics statistics_of(const std::array<std::uint64_t, most_counters>& values) noexcept {
  statistics made;
  for (std::size_t i = 0; i < counters.size(); ++i) {
    if (counters[i].field != nullptr)
      made.*counters[i].field = values[i];
    else
      made.waited = std::chrono::nanoseconds(static_cast<std::int64_t>(values[i]));
  }
  return made;
}

}  // namespace pinfold::observation

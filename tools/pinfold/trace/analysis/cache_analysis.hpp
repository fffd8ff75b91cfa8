// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The figures of one recorded cache: its misses by kind, over time and by range, and what budgets would have saved.
#pragma once

#include "trace/analysis/lru_curve.hpp"
#include "trace/replay/recorded.hpp"
#include "trace/replay/simulate.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// Misses and the time of their opens.
struct miss_total {
  std::uint64_t misses = 0;
  double opened_ns = 0;
};

/// Consecutive requests.
struct request_window {
  std::size_t first = 0;  ///< the number of its first request
  std::size_t requests = 0;
  std::array<std::uint64_t, miss_kinds> misses{};
  double opened_ns = 0;
  std::uint64_t evictions = 0;  ///< of the simulation with the budget
  std::size_t used = 0;         ///< room of the distinct registrations that it requests
  std::size_t seen = 0;         ///< room of the distinct registrations up to its end
};

/// The requests for one registration.
struct range_use {
  std::uint32_t object = 0;
  std::uint64_t requests = 0;
  std::uint64_t misses = 0;
  double opened_ns = 0;
};

/// The replay of one policy with one budget.
struct what_if {
  std::size_t budget = 0;
  const char* policy = "";
  replay_result result;
};

/// Registrations that one request used.
struct single_uses {
  std::uint64_t registrations = 0;
  std::size_t bytes = 0;
  double opened_ns = 0;
};

/// The parts of an analysis that the user chooses.
struct analysis_options {
  std::optional<std::size_t> budget;  ///< in the unit of `replay_object::room`
  std::size_t windows = 96;
  std::size_t ranges = 15;
  std::size_t compared_requests = std::size_t{1} << 19U;  ///< longer traces are replayed with `second-chance` alone
};

/// The figures of a cache. Times are in nanoseconds, rooms in the unit of `replay_object::room`.
struct cache_analysis {
  std::string name;
  std::uint64_t requests = 0;
  std::uint64_t misses = 0;
  std::array<miss_total, miss_kinds> by_kind{};
  double opened_ns = 0;
  std::int64_t longest_ns = 0;
  std::size_t registrations = 0;
  std::size_t footprint = 0;  ///< bytes of all registrations
  std::size_t room = 0;       ///< the same in the unit of the budget
  std::size_t largest = 0;    ///< room of the largest registration
  single_uses once;
  std::vector<request_window> windows;
  std::vector<range_use> costliest;           ///< by the time of their opens
  std::vector<recorded_registration> ranges;  ///< of `costliest`
  std::vector<std::size_t> what_if_budgets;   ///< ascending, the user's included
  std::vector<const char*> policies;          ///< of `report_policies`, the replayed ones
  std::vector<what_if> what_ifs;              ///< each budget with each of `policies`
  std::optional<std::size_t> budget;
  lru_curve curve;

  /// Returns the replay of one policy with one budget, which must be among those above.
  [[nodiscard]] const replay_result& replayed(std::size_t with, const std::string& policy) const;
};

/// The policies that a report compares; `second-chance` is the cache's own.
inline constexpr std::array report_policies{"second-chance", "lru", "sieve", "classes-2", "offline"};

/// Returns the figures of a cache without windows, ranges, curve and replays.
[[nodiscard]] cache_analysis summarise(const recorded_cache& of);

/// Analyses a cache, whose rooms are in bytes or in entries (`count_room`).
[[nodiscard]] cache_analysis analyse(const recorded_cache& of, const analysis_options& options);

}  // namespace tool

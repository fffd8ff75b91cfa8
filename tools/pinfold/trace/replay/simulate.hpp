// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Computes the cost of one policy with one budget on one workload.
#pragma once

#include "trace/replay/policy.hpp"

#include <cstddef>
#include <cstdint>

namespace tool {

/// Room in bytes or in entries: `replay_object::room` says which.
struct replay_result {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t too_large = 0;  ///< those misses that the budget can never hold
  double cost_ns = 0;           ///< of all opens, and of the closes of evictions
};

/// Sets how much room objects take of the budget.
void count_room(workload& of, bool in_entries) noexcept;

/// Makes policies misjudge each object's cost by a random factor, up to `factor` or one over it; the exponent is
/// uniform between -1 and 1. The cost that is paid stays the same: a cache
/// that measures an open has one figure for it, which may be far off.
void misjudge(workload& of, double factor, std::uint64_t seed);

/// Plays all requests, one after the other, without leases in between. Objects that the budget can never hold are
/// opened and closed for each request.
[[nodiscard]] replay_result simulate(const workload& of, policy& chooser, std::size_t budget);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Computes the cost of one policy with one budget on one workload.
#pragma once

#include "trace/replay/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

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

/// A cache that is played request by request, one after the other, without leases in between. Objects that the budget
/// can never hold are opened and closed for each request. Keeps references to its arguments.
class simulation {
 public:
  simulation(const workload& of, policy& chooser, std::size_t budget);

  /// Plays a request for an object.
  void request(std::uint32_t one);

  [[nodiscard]] const replay_result& result() const noexcept { return result_; }

 private:
  void evict();

  const std::vector<replay_object>& objects_;
  policy& chooser_;
  std::size_t budget_;
  std::size_t used_ = 0;
  std::vector<bool> cached_;
  replay_result result_;
};

/// Plays all requests.
[[nodiscard]] replay_result simulate(const workload& of, policy& chooser, std::size_t budget);

}  // namespace tool

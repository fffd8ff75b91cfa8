// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The misses of LRU for every budget, from one pass over the requests (Mattson and others, 1970).
#pragma once

#include "trace/replay/workload.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tool {

/// The misses of true LRU and their cost, for every budget in the unit of `replay_object::room`. Exact for budgets that
/// hold each object; a smaller one also counts objects that are too large for it, which a cache would not keep, against
/// it. Where a trace has more than 2^20 requests, a hit counts from a budget on that is up to 1/4096 too high.
class lru_curve {
 public:
  lru_curve() : steps_(1) {}  ///< of no requests
  explicit lru_curve(const workload& of);

  /// Returns the misses with a budget.
  [[nodiscard]] std::uint64_t misses(std::size_t budget) const noexcept;

  /// Returns the time of all opens with a budget, in nanoseconds.
  [[nodiscard]] double cost_ns(std::size_t budget) const noexcept;

  /// Returns the lowest budget with which LRU opens at most `misses` times; `everything` if there is none.
  [[nodiscard]] std::size_t budget_for(std::uint64_t misses) const noexcept;

  /// The room of all objects: with it, each is opened once.
  [[nodiscard]] std::size_t everything() const noexcept { return everything_; }

 private:
  struct step {
    std::size_t budget = 0;    // from this budget on,
    std::uint64_t misses = 0;  // so many misses remain,
    double cost_ns = 0;        // which cost that much
  };
  [[nodiscard]] const step& at(std::size_t budget) const noexcept;

  std::vector<step> steps_;  // the first is for the budget 0
  std::size_t everything_ = 0;
};

}  // namespace tool

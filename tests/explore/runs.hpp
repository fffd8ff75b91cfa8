// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs schedules in child processes that begin as the others do.
#pragma once

#include "scheduler.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace pinfold::explore {

/// How a schedule ended.
struct outcome {
  std::string failure;  ///< empty: none
  std::uint32_t steps;
  std::uint32_t others;
  std::uint64_t hash;
};

/// Runs what the threads do in a child process. With a plan that is traced, prints every turn.
[[nodiscard]] outcome run(const plan& how, const std::function<void()>& threads);

/// What the threads of a schedule do, and how they are chosen.
struct schedule {
  plan how;
  std::function<void()> threads;
};

struct series_outcome {
  outcome last;          ///< of the schedule that failed, or of the last one
  std::uint64_t number;  ///< of that schedule
  std::uint64_t steps;   ///< of all
};

/// Runs the schedules `first` to `last` one after another, until one fails. A child process runs as many as leave no
/// thread behind. So what a schedule does may depend on those before it: to repeat it, begin with the same first one.
/// Prints every turn of the last one, if its plan is traced.
[[nodiscard]] series_outcome run_series(std::uint64_t first, std::uint64_t last,
                                        const std::function<schedule(std::uint64_t)>& make);

}  // namespace pinfold::explore

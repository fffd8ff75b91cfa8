// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs schedules, each in a child process that begins as the others do.
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

/// Runs what the threads do, and ends the schedule by `end_schedule`, all in a child process. With a plan that is
/// traced, prints every turn.
[[nodiscard]] outcome run(const plan& how, const std::function<void()>& threads);

}  // namespace pinfold::explore

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// All known events that take the pages from under a registration, and some that are said to do so and do not.
#pragma once

#include "support/hazards/hazard_stage.hpp"

#include <functional>
#include <pinfold/options.hpp>
#include <span>

namespace pinfold::testing {

struct hazard {
  const char* name;
  monitor_choice claimed_by;  ///< the monitors that have to see it
  bool dangerous;             ///< old bytes are sent unless a monitor or the application tells
  /// Causes the event once, on a stage of its own, in a process of its own.
  std::function<answer(stage&)> run;
};

}  // namespace pinfold::testing

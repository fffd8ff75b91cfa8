// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Everything that is known to take the pages from under a registration, and some things that are said to and do not.
#pragma once

#include "support/hazard_stage.hpp"

#include <functional>
#include <pinfold/options.hpp>
#include <span>

namespace pinfold::testing {

struct hazard {
  const char* name;
  monitor_choice claimed_by;  ///< those monitors that have to see it
  bool dangerous;             ///< old bytes are sent where nobody tells
  /// Does it once, on a stage of its own, in a process of its own.
  std::function<answer(stage&)> run;
};

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Round numbers for axes.
#pragma once

#include "trace/report/chart.hpp"

#include <string>
#include <vector>

namespace tool {

/// Returns about `wanted` round numbers from 0 on, in equal steps, of which the last is the first that is at least
/// `most`.
[[nodiscard]] std::vector<double> ticks_for(double most, axis_unit unit, int wanted);

/// Returns the label of a tick.
[[nodiscard]] std::string tick_text(double value, axis_unit unit);

}  // namespace tool

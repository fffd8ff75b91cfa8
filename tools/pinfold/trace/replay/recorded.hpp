// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Workloads from a recorded trace.
#pragma once

#include "trace/replay/cost_model.hpp"
#include "trace/replay/workload.hpp"

#include <pinfold/trace_file.hpp>

#include <vector>

namespace tool {

/// Returns one workload for each cache that has requests, in the trace's order. An object is a registration, identified
/// by peer and range. Its cost is the median time of its opens in the trace, and closes cost nothing, as no trace has
/// them; `costs`, if given, is used instead.
[[nodiscard]] std::vector<workload> workloads_of(const pinfold::recorded_trace& trace, const cost_model* costs);

}  // namespace tool

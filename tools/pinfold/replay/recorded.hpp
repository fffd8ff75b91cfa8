// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Workloads from a recorded trace.
#pragma once

#include "cost_model.hpp"
#include "workload.hpp"

#include <pinfold/trace_file.hpp>

#include <vector>

namespace tool {

/// One workload for each cache that has requests, in the trace's order. An object is a registration, by peer and range.
/// It costs what opening it took in the trace, as the median, and closes cost nothing, as no trace has them; or, where
/// `costs` is given, what that says.
[[nodiscard]] std::vector<workload> workloads_of(const pinfold::recorded_trace& trace, const cost_model* costs);

}  // namespace tool

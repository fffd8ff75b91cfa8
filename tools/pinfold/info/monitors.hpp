// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The report of `pinfold info` on the monitors that tell of memory that goes.
#pragma once

#include "cli/report.hpp"

namespace tool {

/// Returns `monitors`, `automatic` and `hazards`, for this host and this process's allocator. Causes every hazard for
/// real. `happens` is true where the hazard leaves stale registrations in a cache that is not told, false where it does
/// not on this host, and null where it cannot be caused here.
[[nodiscard]] json monitor_facts();

/// Prints the same for people.
void print_monitors(const json& facts);

}  // namespace tool

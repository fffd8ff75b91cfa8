// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What `pinfold info` says about who tells of memory that goes.
#pragma once

#include "report.hpp"

namespace tool {

/// `monitors`, `automatic` and `hazards`, for this host and this process's allocator. Does every hazard for real. What
/// `happens` is true where it leaves stale registrations to who is not told, false where it does not here, and null
/// where it cannot be done here.
[[nodiscard]] json monitor_facts();

/// The same for people.
void print_monitors(const json& facts);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The parts of the report of `pinfold info`: each as JSON, and printed for people.
#pragma once

#include "cli/report.hpp"

namespace tool {

/// Returns `verbs` and `libfabric`, each with `works`, `why_not`, and the devices or providers. Loads their libraries,
/// which stay.
[[nodiscard]] json rdma_facts();
void print_rdma(const json& facts);

/// Returns `monitors`, `automatic` and `hazards`, for this host and this process's allocator. Causes every hazard for
/// real. `happens` is true where the hazard leaves stale registrations in a cache that is not told, false where it does
/// not on this host, and null where it cannot be caused here.
[[nodiscard]] json monitor_facts();
void print_monitors(const json& facts);

}  // namespace tool

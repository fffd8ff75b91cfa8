// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The report of `pinfold info` on RDMA devices and libfabric.
#pragma once

#include "cli/report.hpp"

namespace tool {

/// Returns `verbs` and `libfabric`, each with `works`, `why_not`, and the devices or providers. Loads their libraries,
/// which stay.
[[nodiscard]] json rdma_facts();

/// Prints the same for people.
void print_rdma(const json& facts);

}  // namespace tool

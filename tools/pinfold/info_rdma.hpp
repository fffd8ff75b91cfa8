// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What `pinfold info` says about RDMA devices and libfabric.
#pragma once

#include "report.hpp"

namespace tool {

/// `verbs` and `libfabric`, each with `works`, `why_not`, and what there is. Loads their libraries, which stay.
[[nodiscard]] json rdma_facts();

/// The same for people.
void print_rdma(const json& facts);

}  // namespace tool

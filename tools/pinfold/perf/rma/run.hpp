// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The whole of `pinfold perf rma`, once the ranks have met.
#pragma once

#include "perf/rma/options.hpp"
#include "perf/rma/peers.hpp"

namespace tool {

/// Returns the exit status. Throws `failure` or `usage_failure`.
[[nodiscard]] int run_rma(rma_peers& peers, const rma_options& options);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The in-process measurements of `pinfold perf hit|miss|scale|memory|evict`.
#pragma once

#include "cli/report.hpp"

#include "bench/parameters.hpp"

namespace tool {

/// Returns the rows of pinfold, of its other interfaces, and of the floors that no cache can beat. Throws `failure`.
[[nodiscard]] json measure_pinfold(const bench::parameters& how);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What `pinfold perf hit|miss|scale|memory|evict` measures in this process.
#pragma once

#include "report.hpp"

#include "bench/parameters.hpp"

namespace tool {

/// The rows of pinfold, of its other ways to be called, and of what no cache can beat. Throws `failure`.
[[nodiscard]] json measure_pinfold(const bench::parameters& how);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The in-process measurements of `pinfold perf hit|miss|scale|memory|evict|batch`.
#pragma once

#include "cli/report.hpp"

#include "bench/parameters.hpp"

namespace tool {

/// Returns the rows of pinfold, of its other interfaces, and of the floors that no cache can beat. With other monitors
/// than `manual` only those of caches that use them, whose names end with the monitors. Throws `failure`, and
/// `bench::cannot_be_measured` where the monitors do not prove themselves.
[[nodiscard]] json measure_pinfold(const bench::parameters& how);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The columns that people see of the speed measurements.
#pragma once

#include "cli/report.hpp"

#include <vector>

namespace tool {

[[nodiscard]] std::vector<column> hit_columns();
[[nodiscard]] std::vector<column> miss_columns();
[[nodiscard]] std::vector<column> scale_columns();
[[nodiscard]] std::vector<column> memory_columns();
[[nodiscard]] std::vector<column> evict_columns();

}  // namespace tool

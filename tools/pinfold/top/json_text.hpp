// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A sample for programs.
#pragma once

#include "cli/report.hpp"
#include "top/sample.hpp"

namespace tool::top {

/// Returns the sample as a JSON object.
[[nodiscard]] json json_of(const sample& taken);

}  // namespace tool::top

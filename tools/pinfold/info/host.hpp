// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The machine of a measurement: no figure means anything without it.
#pragma once

#include "cli/report.hpp"

#include <string>

namespace tool {

/// Returns the version of pinfold, kernel, CPU, memory and its limits, as the `host` object of every JSON output.
[[nodiscard]] json host_facts();

/// Returns the same as one line.
[[nodiscard]] std::string host_line(const json& facts);

}  // namespace tool

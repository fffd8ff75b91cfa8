// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the figures of a cache suggest to its user.
#pragma once

#include "trace/analysis/cache_analysis.hpp"

#include <string>
#include <vector>

namespace tool {

/// Returns sentences, most useful first. Identifiers are between back quotes. Empty if the figures support no advice:
/// each sentence concerns at least a tenth of the misses (or of the registrations), and 20 of them.
[[nodiscard]] std::vector<std::string> advice_for(const recorded_cache& of, const cache_analysis& figures,
                                                  bool in_entries);

}  // namespace tool

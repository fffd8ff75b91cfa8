// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// All about one cache, as lines of text.
#pragma once

#include "top/entries.hpp"
#include "top/sample.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tool::top {

/// Returns the lines, of at most `width` columns, 80 at least. A line without a leading blank is the title of a part.
[[nodiscard]] std::vector<std::string> detail_of(const process_sample& process, const cache_sample& cache,
                                                 const cache_entries& entries, std::size_t width);

}  // namespace tool::top

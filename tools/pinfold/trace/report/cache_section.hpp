// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The section of one cache.
#pragma once

#include "trace/report/page.hpp"

#include <string>

namespace tool {

/// Returns the section in HTML: figures, advice, charts and tables. `id` names it in the page.
[[nodiscard]] std::string cache_section(const page_cache& cache, const std::string& id);

}  // namespace tool

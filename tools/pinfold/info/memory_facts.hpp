// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that this process may pin, and the system's huge pages.
#pragma once

#include "cli/report.hpp"

#include <string>

namespace tool {

/// Adds to the `host` object: `memlock` (bytes, null for no limit), `memlock_exempt`, `hugetlb_size`, `hugetlb_total`,
/// `hugetlb_free`, `thp`.
void add_memory_facts(json& host);

/// Returns the limit on pinned memory as words.
[[nodiscard]] std::string memlock_line(const json& host);

/// Returns the huge pages as words.
[[nodiscard]] std::string huge_pages_line(const json& host);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How much memory this process may pin, and which huge pages the system has.
#pragma once

#include "report.hpp"

#include <string>

namespace tool {

/// Adds to the `host` object: `memlock` (bytes, null for no limit), `memlock_exempt`, `hugetlb_size`, `hugetlb_total`,
/// `hugetlb_free`, `thp`.
void add_memory_facts(json& host);

/// The limit on pinned memory as words.
[[nodiscard]] std::string memlock_line(const json& host);

/// The huge pages as words.
[[nodiscard]] std::string huge_pages_line(const json& host);

}  // namespace tool

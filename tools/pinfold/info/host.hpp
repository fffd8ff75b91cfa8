// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The machine of a measurement: no figure means anything without it.
#pragma once

#include "cli/report.hpp"

#include <string>

namespace tool {

/// Returns the version of pinfold, kernel, CPU, memory and its limits, as the `host` object of every JSON output. The
/// limits are `memlock` (bytes, null for no limit), `memlock_exempt`, `hugetlb_size`, `hugetlb_total`, `hugetlb_free`
/// and `thp`.
[[nodiscard]] json host_facts();

/// Returns the same as one line.
[[nodiscard]] std::string host_line(const json& facts);

/// Returns the limit on pinned memory as words.
[[nodiscard]] std::string memlock_line(const json& facts);

/// Returns the huge pages as words.
[[nodiscard]] std::string huge_pages_line(const json& facts);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The dump of a process for people and for programs.
#pragma once

#include <pinfold/process_dump.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Sorts by `range`, or with the largest first by `bytes`, `age`, `hits` or `leases`.
void sort_entries(std::vector<pinfold::dumped_entry>& entries, std::string_view order);

/// Return the titles, and an entry, as a line of the dump that is indented by two blanks.
[[nodiscard]] std::string entry_titles();
[[nodiscard]] std::string entry_line(const pinfold::dumped_entry& one);

/// Return the dump as lines of at most 80 columns for addresses below 2^48, or as a JSON object, with at most `limit`
/// entries of each cache; 0: all.
[[nodiscard]] std::string as_text(const pinfold::process_dump& found, std::size_t limit);
[[nodiscard]] std::string as_json(const pinfold::process_dump& found, std::size_t limit);

}  // namespace tool

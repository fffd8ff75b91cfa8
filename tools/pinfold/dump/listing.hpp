// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The dump of a process for people and for programs.
#pragma once

#include <pinfold/process_dump.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Sorts by `range`, or with the largest first by `bytes`, `age`, `hits` or `leases`.
void sort_entries(std::vector<pinfold::dumped_entry>& entries, std::string_view order);

/// Drops entries that do not contain the address, here or in the exporter, and caches without others.
void keep_entries_at(pinfold::process_dump& in, std::uintptr_t address);

/// Return the titles, and an entry, as a line of the dump that is indented by two blanks.
[[nodiscard]] std::string entry_titles();
[[nodiscard]] std::string entry_line(const pinfold::dumped_entry& one);

/// Returns the dump as lines of at most 80 columns for addresses below 2^48, with at most `limit` entries of each
/// cache; 0: all. The text has the options and counters of caches unless `address` says that it is of what
/// `keep_entries_at` kept.
[[nodiscard]] std::string as_text(const pinfold::process_dump& found, std::size_t limit,
                                  std::optional<std::uintptr_t> address);

/// Prints the dump as a JSON object. It is never in memory as a whole: millions of entries would take gigabytes.
void print_json(const pinfold::process_dump& found, std::size_t limit);

}  // namespace tool

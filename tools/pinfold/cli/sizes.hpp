// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Sizes in the form for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Parses `4K,64KiB,1.5 MiB` (`pinfold::parse_size`) into numbers of bytes. Throws `usage_failure` for anything but a
/// list of sizes, each at least 8.
[[nodiscard]] std::vector<std::size_t> parse_sizes(const std::string& text);

/// Parses one size in the same way.
[[nodiscard]] std::size_t parse_one_size(std::string_view text);

/// Formats `65536` as `64 KiB`; with one decimal unless it is a whole number of units.
[[nodiscard]] std::string size_text(std::size_t bytes);

/// Formats a range of memory as `0x7f2a40000000 64 KiB`. Empty for an empty range.
[[nodiscard]] std::string range_text(std::uint64_t begin, std::uint64_t end);

}  // namespace tool

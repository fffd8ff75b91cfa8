// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Sizes as people write and read them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// `4K,64K,1M` as numbers of bytes. Throws `usage_failure` for anything that is not a list of sizes, each 8 at least.
[[nodiscard]] std::vector<std::size_t> parse_sizes(const std::string& text);

/// The same for one size.
[[nodiscard]] std::size_t parse_one_size(std::string_view text);

/// `65536` as `64 KiB`; what is no whole number of units gets one decimal.
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The table of processes and caches as lines of text.
#pragma once

#include "top/sample.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool::top {

/// Names a cache between two samples.
struct cache_key {
  std::string path;          ///< of the page
  std::uint32_t number = 0;  ///< of the cache
  friend bool operator==(const cache_key& one, const cache_key& other) = default;
};

/// A cache's lines in the table.
struct cache_lines {
  cache_key key;
  std::size_t first = 0;  ///< index of its first line
};

struct table_text {
  std::vector<std::string> titles;  ///< of the columns
  std::vector<std::string> lines;   ///< the first character is a blank, for a mark
  std::vector<cache_lines> caches;  ///< in the order of the lines
  std::size_t lines_of_cache = 1;   ///< 2 where `width` has no room for all columns in one line
};

inline constexpr std::size_t least_width = 80;

/// Returns the table for lines of `width` columns, 80 at least.
[[nodiscard]] table_text table_of(const sample& taken, std::size_t width);

}  // namespace tool::top

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The page that `pinfold report` writes.
#pragma once

#include "trace/analysis/cache_analysis.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool {

/// A cache of the page.
struct page_cache {
  cache_analysis figures;
  std::vector<std::string> advice;  ///< text, with identifiers between back quotes
  bool in_entries = false;          ///< rooms are numbers of registrations, not bytes
  std::string failed;               ///< acquires that failed, by reason
};

/// The content of the page.
struct page_content {
  std::string source;            ///< the name of the trace
  std::uint64_t cut_lines = 0;   ///< of the trace, which killed processes left incomplete; skipped
  std::vector<page_cache> all;   ///< each with its own section, in their order
  std::vector<page_cache> rest;  ///< only in the table of caches: their figures lack windows and replays
};

/// Returns the page as one HTML document that needs no other file and no network.
[[nodiscard]] std::string to_page(const page_content& content);

}  // namespace tool

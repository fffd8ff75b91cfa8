// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The entries of one cache, which the pages do not have: read from the memory of its process.
#pragma once

#include "top/sample.hpp"

#include <pinfold/process_dump.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace tool::top {

/// The entries of a cache, or why there are none to see.
struct cache_entries {
  std::vector<pinfold::dumped_entry> all;
  std::string note;                     ///< a sentence; empty if there is nothing to say
  std::chrono::nanoseconds reading{0};  ///< how long it took
};

/// Reads the entries of the caches of that name and registrar in the process. Never throws `failure`.
[[nodiscard]] cache_entries entries_of(const process_sample& process, const cache_sample& cache);

}  // namespace tool::top

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the statistics pages say at one time, and since the time before.
#pragma once

#include "cli/page_folder.hpp"
#include "cli/pages.hpp"

#include <pinfold/observation/reader.hpp>
#include <pinfold/statistics.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tool::top {

/// One cache. The rates are over the time between the publications that two samples saw; in the first sample, over the
/// cache's life.
struct cache_sample {
  pinfold::observation::cache_snapshot page;
  pinfold::statistics since;  ///< growth of the counters over that time; gauges have no meaning here
  double seconds = 0;         ///< that time; 0 if the process published nothing between two samples
};

/// What the caches of a process that have not ended come to.
struct holdings {
  std::uint64_t bytes = 0;            ///< registered, with those outside the budget
  std::uint64_t budget = UINT64_MAX;  ///< the sum of the budgets; 2^64 - 1 if one is unlimited, or there is no cache
  std::size_t running = 0;
  std::size_t ended = 0;
};

/// One page: a process, or one copy of the library in a process that has several.
struct process_sample {
  pinfold::observation::process_snapshot page;  ///< `page.caches` is empty
  std::vector<cache_sample> caches;
  holdings held;
};

struct sample {
  std::vector<process_sample> processes;
  std::vector<unreadable_page> unreadable;
  std::chrono::nanoseconds reading{0};  ///< how long the pages took
};

/// Takes samples of the pages in a folder.
class sampler {
 public:
  /// Of the processes with these ids; of all, if there is none.
  sampler(page_folder folder, std::vector<std::size_t> only);

  /// Reads the pages. Throws `failure` when the folder cannot be read.
  [[nodiscard]] sample take();

  /// Returns the wanted ids for which the sample has no page.
  [[nodiscard]] std::vector<std::size_t> missing_from(const sample& taken) const;

  [[nodiscard]] const std::string& directory() const noexcept { return folder_.path; }

 private:
  struct earlier {
    pinfold::statistics counters;
    std::chrono::nanoseconds published{0};  ///< since the page was made
  };
  using key = std::pair<std::string, std::uint32_t>;  // the page's path, and the cache's number

  [[nodiscard]] process_sample compared(pinfold::observation::process_snapshot read,
                                        std::map<key, earlier>& published) const;

  page_folder folder_;
  std::vector<std::size_t> only_;
  std::map<key, earlier> earlier_;
};

}  // namespace tool::top

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Twice as much memory as the budget allows, in no order: about every second request misses and evicts.
#pragma once

#include "rows.hpp"
#include "steady_state.hpp"
#include "unmapping.hpp"

#include <algorithm>
#include <vector>

namespace bench {

template <counting_subject Subject>
json evict_row(const parameters& how, std::size_t budget, unsigned threads) try {
  const region_memory memory(how, 2 * budget);
  const auto& regions = memory.regions();
  Subject cache(regions, setup{.most = budget, .threads = threads, .monitors = how.monitors});
  tally filled;
  fill(cache, regions, how.time_limit, filled);
  std::vector<requests> wanted;
  for (unsigned thread = 0; thread < threads; ++thread)
    wanted.push_back(requests_for(regions, pattern::random, thread, threads));
  const auto before = cache.registrations();
  // The median of windows would leave out those in which a thread sleeps at the cache's lock while another runs alone.
  const auto measured = measure_steady(how, cache, wanted, mean_cost);
  const auto misses = static_cast<double>(cache.registrations() - before);
  auto row = row_of(Subject::name, budget, threads, "random");
  add_figure(row, measured.median, measured.errors + filled.errors);
  row["hit_rate"] = rounded(1 - misses / static_cast<double>(measured.operations));
  return row;
} catch (const cannot_be_measured& why) {
  return skipped_row(row_of(Subject::name, budget, threads, "random"), why);
}

/// Measures for each budget in `regions`.
template <counting_subject Subject>
json measure_eviction(const parameters& how) {
  auto rows = json::array();
  for (const auto budget : how.regions) {
    for (const auto threads : how.threads) {
      if (budget >= threads) add_row(how, rows, evict_row<Subject>(how, budget, threads));  // each thread needs room
    }
  }
  add_gains(rows);
  return rows;
}

}  // namespace bench

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Hits: on one thread, and how they scale.
#pragma once

#include "rows.hpp"
#include "steady_state.hpp"
#include "unmapping.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace bench {

/// Returns 0 of a subject that does not count.
template <class Subject>
[[nodiscard]] std::uint64_t registrations_of(const Subject& cache) {
  if constexpr (counting_subject<Subject>) return cache.registrations();
  return 0;
}

/// Counts registrations as errors: then the request was no hit.
template <class Subject>
json hit_row(const parameters& how, Subject& cache, const region_set& regions, pattern which, unsigned threads) {
  std::vector<requests> wanted;
  for (unsigned thread = 0; thread < threads; ++thread) wanted.push_back(requests_for(regions, which, thread, threads));
  const auto before = registrations_of(cache);
  const auto measured = measure_steady(how, cache, wanted);
  auto row = row_of(Subject::name, regions.count(), threads, name_of(which));
  add_figure(row, measured.median, measured.errors + (registrations_of(cache) - before));
  return row;
}

/// Calls `more(rows, cache, regions)` for each number of regions, once they are in the cache.
template <class Subject, class More>
json with_filled(const parameters& how, More more) {
  auto rows = json::array();
  for (const auto count : how.regions) {
    const region_memory memory(how, count);
    const auto& regions = memory.regions();
    Subject cache(regions, setup{.monitors = how.monitors});
    tally filled;
    try {
      fill(cache, regions, how.time_limit, filled);
      more(rows, cache, regions);
    } catch (const out_of_time& why) {
      add_row(how, rows, skipped_row(row_of(Subject::name, count, 1, name_of(pattern::random)), why));
    }
    auto& last = rows.back()["errors"];
    last = last.template get<std::uint64_t>() + filled.errors;
  }
  return rows;
}

/// Measures whole regions and parts of them, on one thread.
template <subject Subject>
json measure_hits(const parameters& how) {
  return with_filled<Subject>(how, [&](json& rows, Subject& cache, const region_set& regions) {
    for (const auto which : {regions.count() == 1 ? pattern::same : pattern::random, pattern::interior})
      add_row(how, rows, hit_row(how, cache, regions, which, 1));
  });
}

/// Measures all threads on one region, each on its own, all on all. Leaves out meaningless cases: one region has no
/// order, and each thread needs one.
template <subject Subject>
json measure_scaling(const parameters& how) {
  const auto most_threads = *std::ranges::max_element(how.threads);
  auto rows = with_filled<Subject>(how, [&](json& all, Subject& cache, const region_set& regions) {
    for (const auto which : {pattern::same, pattern::distinct, pattern::random}) {
      if (which == pattern::random && regions.count() == 1) continue;
      if (which == pattern::distinct && regions.count() < most_threads) continue;
      for (const auto threads : how.threads) add_row(how, all, hit_row(how, cache, regions, which, threads));
    }
  });
  add_gains(rows);
  return rows;
}

}  // namespace bench

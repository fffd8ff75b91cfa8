// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Misses: every region is new. Each thread gets a slice of the same order of regions.
#pragma once

#include "rows.hpp"
#include "subject.hpp"
#include "worker_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

inline constexpr std::size_t misses_of_window = 512;

template <class User>
windows insert_each(const deadline& end, User& user, const request* first, const request* last, tally& seen) {
  windows measured;
  const auto all = static_cast<std::size_t>(last - first);
  while (first != last) {
    end.check(all - static_cast<std::size_t>(last - first), all);
    const auto* const next = first + std::min<std::ptrdiff_t>(last - first, misses_of_window);
    measured.push_back(watch(static_cast<std::uint64_t>(next - first), [&] { use_each(user, first, next, seen); }));
    first = next;
  }
  return measured;
}

/// Measures once, with an empty cache.
template <class Subject>
figure insert_all(const deadline& end, const region_set& regions, const requests& all, unsigned threads,
                  std::atomic<std::uint64_t>& errors) {
  Subject cache(regions, setup{});
  run_windows run(threads);
  run_crew(threads, [&](unsigned thread, starting_line& line) {
    auto user = cache.user();
    tally seen;
    const auto* const first = all.data() + all.size() * thread / threads;
    const auto* const last = all.data() + all.size() * (thread + 1) / threads;
    line.wait();
    run[thread] = insert_each(end, user, first, last, seen);
    errors += seen.errors;
  });
  return figure_of(run, mean_cost, threads_on_a_cpu(threads) > 1);
}

/// Repeats the measurement as long as there is time.
template <class Subject>
json miss_row(const parameters& how, const region_set& regions, bool shuffled, unsigned threads) {
  const auto all = each_once(regions, shuffled);
  auto row = row_of(Subject::name, regions.count(), threads, shuffled ? "random" : "sequential");
  const deadline end(how.time_limit);
  std::atomic<std::uint64_t> errors{0};
  std::vector<figure> figures;
  try {
    while (figures.size() < how.repeats) figures.push_back(insert_all<Subject>(end, regions, all, threads, errors));
  } catch (const out_of_time& why) {
    if (figures.empty()) return skipped_row(std::move(row), why);
  }
  add_figure(row, median_figure(std::move(figures)), errors);
  return row;
}

/// Measures in the order of addresses, and in random order.
template <subject Subject>
json measure_misses(const parameters& how) {
  auto rows = json::array();
  for (const auto count : how.regions) {
    for (const bool shuffled : {false, true}) {
      if (count == 1 && shuffled) continue;
      for (const auto threads : how.threads) {
        if (count >= threads) rows.push_back(miss_row<Subject>(how, region_set(count), shuffled, threads));
      }
    }
  }
  add_gains(rows);
  return rows;
}

}  // namespace bench

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Misses: every region is new. Each thread gets a slice of the same order of regions.
#pragma once

#include "rows.hpp"
#include "subject.hpp"
#include "unmapping.hpp"
#include "worker_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

/// Makes the cache deregister each region, which it has.
template <forgetting_user User>
void drop_each(User& user, const request* first, const request* last) {
  for (; first != last; ++first) {
    auto held = user.get(*first);
    user.forget(held);
    user.put(held);
  }
}

/// Inserts all regions into the cache, that many times while there is time, and returns the figure of each. For
/// `how.refill` the cache has them before, and drops them untimed. Hits, and regions that do not stay in the cache, are
/// errors.
template <unmapping_subject Subject>
std::vector<figure> insert_all(const parameters& how, Subject& cache, const requests& all, unsigned threads,
                               std::size_t rounds, std::atomic<std::uint64_t>& errors) {
  std::vector<run_windows> runs(rounds, run_windows(threads));
  std::atomic<std::uint64_t> inserted{0};
  const auto registered_before = cache.registrations();
  const auto stop = now_ns() + static_cast<std::uint64_t>(how.time_limit * 1e9);
  run_crew(threads, [&](unsigned thread, starting_line& line) {
    auto user = cache.user();
    tally seen;
    const auto* const first = all.data() + all.size() * thread / threads;
    const auto* const last = all.data() + all.size() * (thread + 1) / threads;
    for (auto& run : runs) {
      if (line.wait() > stop && &run != &runs.front()) break;
      if (how.refill) drop_each(user, first, last);
      line.wait();
      run[thread] = insert_each(deadline(how.time_limit), user, first, last, seen);
    }
    errors += seen.errors;
    inserted += seen.operations;
  });
  const auto registered = cache.registrations();
  errors += inserted - (registered - registered_before);
  errors += all.size() - std::min<std::uint64_t>(all.size(), registered - cache.deregistrations());
  std::erase_if(runs, [](const run_windows& run) { return !each_has_some(run); });
  std::vector<figure> figures;
  for (const auto& run : runs) figures.push_back(figure_of(run, mean_cost, threads_on_a_cpu(threads) > 1));
  return figures;
}

/// Returns the figures of one cache: of an empty one, or of refilling. That goes on for longer with few regions.
template <class Subject>
std::vector<figure> insert_into_one(const parameters& how, const region_set& regions, bool shuffled, unsigned threads,
                                    std::atomic<std::uint64_t>& errors) {
  const auto all = each_once(regions, shuffled);
  Subject cache(regions, setup{.monitors = how.monitors});
  if (!how.refill) return insert_all(how, cache, all, threads, 1, errors);
  tally filled;
  fill(cache, regions, how.time_limit, filled, shuffled);
  errors += filled.errors;
  const auto rounds = how.repeats * std::max<std::size_t>(1, misses_of_window / all.size());
  return insert_all(how, cache, all, threads, rounds, errors);
}

/// Repeats the measurement as long as there is time.
template <class Subject>
json miss_row(const parameters& how, const region_set& regions, bool shuffled, unsigned threads) {
  auto row = row_of(Subject::name, regions.count(), threads, shuffled ? "random" : "sequential");
  const deadline end(how.time_limit);
  std::atomic<std::uint64_t> errors{0};
  std::vector<figure> figures;
  try {
    while (figures.empty() || (figures.size() < how.repeats && !end.passed()))
      std::ranges::move(insert_into_one<Subject>(how, regions, shuffled, threads, errors), std::back_inserter(figures));
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
        if (count < threads) continue;
        add_row(how, rows, miss_row<Subject>(how, region_memory(how, count).regions(), shuffled, threads));
      }
    }
  }
  add_gains(rows);
  return rows;
}

}  // namespace bench

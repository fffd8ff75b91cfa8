// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cost of munmap beside a cache, and of the cache's work afterwards.
#pragma once

#include "rows.hpp"
#include "slow.hpp"
#include "subject.hpp"
#include "unmapping.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

/// A subject for which the program itself has to announce that memory goes.
template <class Subject>
void announce(Subject& cache, const mapped_area& area) {
  if constexpr (requires { cache.going(area.begin(), area.bytes()); }) cache.going(area.begin(), area.bytes());
}

/// Returns the typical cost in the windows that were not disturbed, or in all windows if there are none.
[[nodiscard]] inline double typical(const windows& all) {
  windows good;
  std::ranges::copy_if(all, std::back_inserter(good), [](const window& one) { return !one.disturbed; });
  return typical_cost(good.empty() ? all : good);
}

inline void add_difference(json& row, double with, double without) {
  row["ns_per_op"] = rounded(with);
  row["ns_without"] = rounded(without);
  row["ns_extra"] = rounded(with - without);
}

/// Measures windows with and without the cache in turn, until each had its time.
template <class With, class Without>
void alternate(const parameters& how, With&& with, Without&& without, windows& had, windows& had_not) {
  const auto end = now_ns() + static_cast<std::uint64_t>(2e9 * how.seconds * how.repeats);
  do {
    had.push_back(with());
    had_not.push_back(without());
  } while (now_ns() < end || had.size() < how.repeats);
}

/// Compares with the same calls past the C library, since the difference to another process is larger than the effect.
/// So the result does not contain the kernel's work for a monitor.
template <unmapping_subject Subject>
json unrelated_unmaps(const parameters& how, json row) {
  static constexpr std::uint64_t pairs = 250;
  if (!map_and_unmap_unseen(1)) throw cannot_be_measured("nothing to compare with on this architecture");
  const mapped_area area(how.regions.front());
  Subject cache(area.regions(), setup{});
  tally seen;
  fill(cache, area.regions(), how.time_limit, seen, false);
  const pinned_here stay(0);
  windows had;
  windows had_not;
  alternate(
      how, [] { return watch(pairs, [] { map_and_unmap(pairs); }); },
      [] { return watch(pairs, [] { map_and_unmap_unseen(pairs); }); }, had, had_not);
  add_difference(row, typical(had), typical(had_not));
  row["windows"] = had.size();
  row["errors"] = seen.errors;
  return json::array({row});
}

/// The costs around one munmap of all cached regions but one.
struct big_unmap_result {
  double with = 0;
  double without = 0;
  double next = 0;     ///< the first get and put of the region that is still mapped
  double longest = 0;  ///< of the later ones
  double drained = 0;  ///< until all other regions were deregistered
  std::uint64_t left = 0;
  std::uint64_t errors = 0;
};

/// Uses the region that is still mapped, now and then lets the cache do its deferred work, and checks until no other is
/// left.
template <class Subject>
void drain(Subject& cache, const request& elsewhere, std::uint64_t wanted, big_unmap_result& seen, tally& used) {
  constexpr int looks = 200;
  const deadline end(60);
  auto user = cache.user();
  const auto begin = now_ns();
  for (int look = 0; look < looks; ++look) {
    const auto before = now_ns();
    use_each(user, &elsewhere, &elsewhere + 1, used);
    const auto took = static_cast<double>(now_ns() - before);
    (look == 0 ? seen.next : seen.longest) = look == 0 ? took : std::max(seen.longest, took);
  }
  while (cache.deregistrations() < wanted && !end.passed()) {
    if constexpr (requires { cache.tidy(); }) cache.tidy();
    use_each(user, &elsewhere, &elsewhere + 1, used);
  }
  seen.drained = static_cast<double>(now_ns() - begin);
  seen.left = wanted - std::min<std::uint64_t>(wanted, cache.deregistrations());
}

template <unmapping_subject Subject>
big_unmap_result unmap_once(const parameters& how, const process_without_cache& without) {
  big_unmap_result seen;
  mapped_area area(how.many);
  const mapped_area elsewhere(1);
  Subject cache(area.regions(), setup{});
  tally used;
  fill(cache, elsewhere.regions(), how.time_limit, used, false);
  fill(cache, area.regions(), how.time_limit, used, false);
  const pinned_here stay(0);
  seen.without = without.unmapping(how.many).ns();
  announce(cache, area);
  seen.with = watch(1, [&] { area.unmap(); }).ns();
  drain(cache, elsewhere.regions()[0], how.many, seen, used);
  seen.errors = used.errors;
  return seen;
}

template <unmapping_subject Subject>
json big_unmap(const parameters& how, const process_without_cache& without, json row) {
  constexpr unsigned most_repeats = 3;  // each run fills a cache of a million regions
  std::vector<big_unmap_result> all;
  for (unsigned repeat = 0; repeat < std::min(how.repeats, most_repeats); ++repeat)
    all.push_back(unmap_once<Subject>(how, without));
  const auto middle = [&](auto member) {
    std::vector<double> values;
    for (const auto& one : all) values.push_back(static_cast<double>(one.*member));
    return median(std::move(values));
  };
  add_difference(row, middle(&big_unmap_result::with), middle(&big_unmap_result::without));
  row["next_ns"] = rounded(middle(&big_unmap_result::next));
  row["longest_ns"] = rounded(middle(&big_unmap_result::longest));
  row["drain_ns"] = rounded(middle(&big_unmap_result::drained));
  row["left"] = middle(&big_unmap_result::left);
  row["errors"] = middle(&big_unmap_result::errors);
  return json::array({row});
}

/// Stays where the monitor's thread is, if it has one: that thread begins where the cache is made.
template <unmapping_subject Subject>
json cached_unmap_row(const parameters& how, const process_without_cache& without, json row, bool same_cpu) {
  static constexpr std::uint64_t rounds = 100;
  mapped_area area(1);
  tally seen;
  std::uint64_t registered_again = 0;
  windows had;
  windows had_not;
  {
    const pinned_here start(same_cpu ? 0 : 1);
    Subject cache(area.regions(), setup{});
    const pinned_here stay(0);
    auto user = cache.user();
    const auto all = area.regions()[0];
    use_each(user, &all, &all + 1, seen);
    const std::uint64_t before = cache.registrations();
    alternate(
        how,
        [&] {
          return watch(rounds, [&] {
            for (std::uint64_t i = 0; i < rounds; ++i) {
              announce(cache, area);
              area.unmap();
              area.map_again();
              use_each(user, &all, &all + 1, seen);
            }
          });
        },
        [&] { return without.rounds(rounds); }, had, had_not);
    registered_again = cache.registrations() - before;
  }
  row["placement"] = same_cpu ? "same-cpu" : "other-cpu";
  add_difference(row, typical(had), typical(had_not));
  row["windows"] = had.size();
  row["stale"] = had.size() * rounds - std::min<std::uint64_t>(had.size() * rounds, registered_again);
  row["errors"] = seen.errors;
  return row;
}

template <unmapping_subject Subject>
json cached_unmaps(const parameters& how, const process_without_cache& without, const json& row) {
  auto rows = json::array();
  rows.push_back(cached_unmap_row<Subject>(how, without, row, true));
  if (cpus_at_start().size() > 1) rows.push_back(cached_unmap_row<Subject>(how, without, row, false));
  return rows;
}

}  // namespace bench

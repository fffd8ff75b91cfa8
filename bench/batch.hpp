// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Many small ranges at once: registered, released, and found again.
#pragma once

#include "miss.hpp"
#include "rows.hpp"
#include "subject.hpp"
#include "unmapping.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

/// Returns ranges of 4 KiB within the regions, with gaps as wide, so that no two can share a registration.
[[nodiscard]] inline requests small_ranges(const region_set& regions) {
  constexpr std::size_t bytes = std::size_t{4} << 10;
  requests made;
  for (std::size_t index = 0; index < regions.count(); ++index)
    made.push_back({regions[0].address + 2 * index * bytes, bytes});
  return made;
}

/// Gets ranges one after the other, and holds them all.
template <class Subject>
class one_by_one {
 public:
  static constexpr const char* name = "one-by-one";

  one_by_one(Subject& cache, const requests& wanted, unsigned /*workers*/) : user_(cache.user()), wanted_(wanted) {
    held_.reserve(wanted.size());
  }
  void get(const deadline& end) {
    for (const auto& one : wanted_) {
      if (held_.size() % misses_of_window == 0) end.check(held_.size(), wanted_.size());
      held_.push_back(user_.get(one));
    }
  }
  [[nodiscard]] std::uint64_t errors() const {
    return static_cast<std::uint64_t>(std::ranges::count_if(held_, [&](auto& one) { return user_.key(one) == 0; }));
  }
  void put() {
    for (auto& one : held_) user_.put(one);
    held_.clear();
  }

 private:
  using user_type = decltype(std::declval<Subject&>().user());
  using held = decltype(std::declval<user_type&>().get(std::declval<const request&>()));

  user_type user_;
  const requests& wanted_;
  std::vector<held> held_;
};

/// Returns a row each for the first get of all ranges, for their put, and for the next get, which must register none.
template <counting_subject Subject, class Way>
json batch_rows(const parameters& how, const region_set& regions, unsigned workers) try {
  const auto wanted = small_ranges(regions);
  constexpr std::array<const char*, 3> cases{"cold", "release", "warm"};
  std::array<std::vector<double>, cases.size()> ns;
  std::uint64_t errors = 0;
  for (unsigned repeat = 0; repeat < how.repeats; ++repeat) {
    Subject cache(regions, setup{.threads = workers, .monitors = how.monitors});
    Way all(cache, wanted, workers);
    const deadline end(how.time_limit);
    const auto get = [&] { all.get(end); };
    const auto put = [&] { all.put(); };
    ns[0].push_back(watch(wanted.size(), get).ns_per_operation());
    errors += all.errors();
    ns[1].push_back(watch(wanted.size(), put).ns_per_operation());
    ns[2].push_back(watch(wanted.size(), get).ns_per_operation());
    errors += all.errors() + (cache.registrations() - wanted.size());
    all.put();
  }
  auto rows = json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    auto row = row_of(Subject::name, wanted.size(), workers, Way::name);
    const auto cost = median(std::move(ns[i]));
    row["case"] = cases[i];
    row["ns_per_op"] = rounded(cost);
    row["ms"] = rounded(cost * static_cast<double>(wanted.size()) * 1e-6);
    row["errors"] = i == 0 ? errors : 0;
    rows.push_back(std::move(row));
  }
  return rows;
} catch (const out_of_time& why) {
  return json::array({skipped_row(row_of(Subject::name, regions.count(), workers, Way::name), why)});
}

/// Measures one call for all ranges, where the subject has one, with each number of threads; and a call for each range.
template <subject Subject>
json measure_batches(const parameters& how) {
  auto rows = json::array();
  for (const auto count : how.regions) {
    const region_memory memory(how, count);
    if constexpr (requires { typename Subject::batch; }) {
      for (const auto threads : how.threads)
        add_rows(how, rows, batch_rows<Subject, typename Subject::batch>(how, memory.regions(), threads));
    }
    add_rows(how, rows, batch_rows<Subject, one_by_one<Subject>>(how, memory.regions(), 1));
  }
  return rows;
}

}  // namespace bench

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Acquires on one thread and releases on another, like a thread that completes the I/O of others.
#pragma once

#include "hit.hpp"
#include "rows.hpp"
#include "subject.hpp"
#include "worker_group.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

namespace bench {

/// Two arrays go back and forth between the threads, so that both work at the same time. Only filling and emptying them
/// is timed.
template <class User>
class handover {
 public:
  using held = decltype(std::declval<User&>().get(std::declval<const request&>()));
  static constexpr std::size_t array_size = std::size_t{1} << 16;

  handover() {
    for (auto& one : arrays_) one.holds.resize(array_size);
  }

  window fill(std::size_t round, User& user, request_ring& ring, tally& seen) {
    auto& into = arrays_[round % 2];
    into.full.wait(true, std::memory_order_acquire);
    const auto timed = watch(array_size, [&] {
      for (auto& hold : into.holds) {
        hold.emplace(user.get(ring.next()));
        seen.add(user.key(*hold));
      }
    });
    signal(into, true);
    return timed;
  }

  window empty(std::size_t round, User& user) {
    auto& from = arrays_[round % 2];
    from.full.wait(false, std::memory_order_acquire);
    const auto timed = watch(array_size, [&] {
      for (auto& hold : from.holds) user.put(*hold);
    });
    signal(from, false);
    return timed;
  }

 private:
  struct array {
    std::vector<std::optional<held>> holds;
    std::atomic<bool> full{false};
  };

  static void signal(array& which, bool full) noexcept {
    which.full.store(full, std::memory_order_release);
    which.full.notify_one();
  }

  std::array<array, 2> arrays_;
};

template <class Subject>
figure measure_handover(Subject& cache, const requests& wanted, std::size_t rounds,
                        std::atomic<std::uint64_t>& errors) {
  using user_type = decltype(cache.user());
  handover<user_type> between;
  run_windows run(2);
  run_crew(2, [&](unsigned thread, starting_line& line) {
    auto user = cache.user();
    request_ring ring(wanted);
    tally seen;
    line.wait();
    for (std::size_t round = 0; round < rounds; ++round)
      run[thread].push_back(thread == 0 ? between.fill(round, user, ring, seen) : between.empty(round, user));
    errors += seen.errors;
  });
  return figure_of(run, typical_cost, false);  // the threads wait for each other, which is not timed
}

/// Returns twenty or so; fewer where a subject is so slow that they would take too long.
template <class Subject>
std::size_t rounds_for(const parameters& how, Subject& cache, const requests& wanted) {
  constexpr std::uint64_t tried = 256;
  auto user = cache.user();
  request_ring ring(wanted);
  tally seen;
  const auto once = watch(tried, [&] { use(user, ring, tried, seen); });
  const auto round_seconds = once.ns_per_operation() * handover<decltype(user)>::array_size * 1e-9;
  const auto fitting = how.time_limit / how.repeats / std::max(round_seconds, 1e-9);
  return static_cast<std::size_t>(std::clamp(fitting, 3.0, std::max(3.0, how.seconds * 400)));
}

/// Measures random regions. `ns_per_op` is the time of both threads together for one operation.
template <class Subject>
json handover_row(const parameters& how, Subject& cache, const region_set& regions) {
  const auto wanted = requests_for(regions, pattern::random, 0, 1);
  const auto rounds = rounds_for(how, cache, wanted);
  const deadline end(how.time_limit);
  std::atomic<std::uint64_t> errors{0};
  std::vector<figure> figures;
  for (unsigned repeat = 0; repeat < how.repeats && (repeat == 0 || !end.passed()); ++repeat)
    figures.push_back(measure_handover(cache, wanted, rounds, errors));
  auto measured = median_figure(std::move(figures));
  auto row = row_of(Subject::name, regions.count(), 2, "handover");
  row["ns_acquire"] = rounded(measured.ns_of_threads[0]);
  row["ns_release"] = rounded(measured.ns_of_threads[1]);
  measured.ns_per_operation = measured.ns_of_threads[0] + measured.ns_of_threads[1];
  const bool in_turn = threads_on_a_cpu(2) > 1;
  measured.operations_per_us = 1000 / (in_turn ? measured.ns_per_operation : std::ranges::max(measured.ns_of_threads));
  add_figure(row, measured, errors);
  return row;
}

template <subject Subject>
json measure_handovers(const parameters& how) {
  return with_filled<Subject>(how, [&](json& rows, Subject& cache, const region_set& regions) {
    add_row(how, rows, handover_row(how, cache, regions));
  });
}

}  // namespace bench

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Measures operations that go on in the same way for any time: hits, and misses under a budget.
#pragma once

#include "parameters.hpp"
#include "sampling_windows.hpp"
#include "subject.hpp"
#include "worker_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace bench {

/// Returns how many operations take about a window.
template <class User>
std::uint64_t operations_of_window(User& user, request_ring& ring, tally& seen) {
  for (std::uint64_t operations = 16;; operations *= 2) {
    const auto once = watch(operations, [&] { use(user, ring, operations, seen); });
    if (once.ns() < window_ns / 4.0) continue;
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(window_ns / once.ns_per_operation()));
  }
}

/// Times windows whose length follows from the previous one: the cost of an operation depends on the other threads.
template <class User>
windows windows_until(std::uint64_t end, User& user, request_ring& ring, std::uint64_t operations, tally& seen) {
  windows measured;
  do {
    measured.push_back(watch(operations, [&] { use(user, ring, operations, seen); }));
    const auto fitting = static_cast<std::uint64_t>(window_ns / std::max(measured.back().ns_per_operation(), 0.01));
    operations = std::clamp<std::uint64_t>(fitting, 1, 2 * operations);
  } while (measured.back().end < end);
  return measured;
}

/// The result of several measurements.
struct outcome {
  figure median;
  std::uint64_t operations = 0;  ///< including those that were not timed
  std::uint64_t errors = 0;
};

/// Runs every thread of the worker_group with its own requests, `how.repeats` times. All end at the same time; where
/// they share CPUs that is later, so that each has a CPU for as long. `cost` is that of a thread's windows.
template <class Subject>
outcome measure_steady(const parameters& how, Subject& cache, const std::vector<requests>& wanted,
                       double (*cost)(const windows&) = typical_cost) {
  const auto threads = static_cast<unsigned>(wanted.size());
  std::vector<run_windows> runs(how.repeats, run_windows(threads));
  std::atomic<std::uint64_t> errors{0};
  std::atomic<std::uint64_t> operations{0};
  const auto in_turn = threads_on_a_cpu(threads);
  const auto length = static_cast<std::uint64_t>(how.seconds * in_turn * 1e9);
  run_crew(threads, [&](unsigned thread, starting_line& line) {
    auto user = cache.user();
    request_ring ring(wanted[thread]);
    tally seen;
    line.wait();
    const auto at_a_time = operations_of_window(user, ring, seen);
    for (auto& run : runs) {
      const auto end = line.wait() + length;
      run[thread] = windows_until(end, user, ring, at_a_time, seen);
    }
    errors += seen.errors;
    operations += seen.operations;
  });
  std::vector<figure> figures;
  for (const auto& run : runs) figures.push_back(figure_of(run, cost, in_turn > 1));
  return {median_figure(std::move(figures)), operations, errors};
}

}  // namespace bench

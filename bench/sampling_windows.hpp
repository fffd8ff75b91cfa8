// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A measurement is cut into windows of about a millisecond, so that windows in which the scheduler took a thread off
/// its CPU can be dropped.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <sys/resource.h>
#include <utility>
#include <vector>

namespace bench {

inline constexpr std::uint64_t window_ns = 1'000'000;

[[nodiscard]] inline std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Returns how often this thread was taken off its CPU while it could run.
[[nodiscard]] inline long times_switched_out() noexcept {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

struct window {
  std::uint64_t begin = 0;  ///< nanoseconds of the steady clock
  std::uint64_t end = 0;
  std::uint64_t operations = 0;
  bool disturbed = false;

  [[nodiscard]] double ns() const noexcept { return static_cast<double>(end - begin); }
  [[nodiscard]] double ns_per_operation() const noexcept { return ns() / static_cast<double>(operations); }
};
using windows = std::vector<window>;

/// Does the work, which consists of `operations` operations, as one window.
template <class Work>
window watch(std::uint64_t operations, Work&& work) {
  window seen{.operations = operations};
  const auto before = times_switched_out();
  seen.begin = now_ns();
  work();
  seen.end = now_ns();
  seen.disturbed = times_switched_out() != before;
  return seen;
}

/// The windows of each thread of one measurement.
using run_windows = std::vector<windows>;

template <class Predicate>
run_windows chosen(const run_windows& all, Predicate good) {
  run_windows kept(all.size());
  for (std::size_t thread = 0; thread < all.size(); ++thread)
    std::ranges::copy_if(all[thread], std::back_inserter(kept[thread]), good);
  return kept;
}

[[nodiscard]] inline std::uint64_t operations_of(const windows& thread) {
  std::uint64_t operations = 0;
  for (const auto& one : thread) operations += one.operations;
  return operations;
}

/// Returns the time from the first begin to the last end.
[[nodiscard]] inline double wall_ns(const run_windows& all) {
  std::uint64_t begin = UINT64_MAX;
  std::uint64_t end = 0;
  for (const auto& thread : all) {
    if (thread.empty()) continue;
    begin = std::min(begin, thread.front().begin);
    end = std::max(end, thread.back().end);
  }
  return end == 0 ? 0 : static_cast<double>(end - begin);
}

[[nodiscard]] inline bool each_has_some(const run_windows& all) {
  return std::ranges::none_of(all, [](const windows& thread) { return thread.empty(); });
}

/// Keeps the windows within the time in which all threads ran.
[[nodiscard]] inline run_windows side_by_side(const run_windows& all) {
  if (!each_has_some(all)) return run_windows(all.size());
  std::uint64_t begin = 0;
  std::uint64_t end = UINT64_MAX;
  for (const auto& thread : all) {
    begin = std::max(begin, thread.front().begin);
    end = std::min(end, thread.back().end);
  }
  return chosen(all, [=](const window& one) { return one.begin >= begin && one.end <= end; });
}

/// Keeps the windows during which no thread was switched out.
[[nodiscard]] inline run_windows undisturbed(const run_windows& all) {
  windows bad;
  for (const auto& thread : all) std::ranges::copy_if(thread, std::back_inserter(bad), &window::disturbed);
  return chosen(all, [&](const window& one) {
    return std::ranges::none_of(bad,
                                [&](const window& other) { return one.begin < other.end && other.begin < one.end; });
  });
}

/// Returns, of several runs, the one whose `key` is the median, so that its figures belong together. Needs at least one
/// run.
template <class Run, class Key>
[[nodiscard]] Run median_by(std::vector<Run> runs, Key key) {
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::ranges::nth_element(runs, middle, {}, key);
  return std::move(*middle);
}

/// Returns the median of the values; 0 of none.
[[nodiscard]] inline double median(std::vector<double> values) {
  return values.empty() ? 0 : median_by(std::move(values), std::identity{});
}

/// Returns the cost of an operation where all windows are alike. Windows in which the host took the CPU away, which a
/// guest cannot detect otherwise, do not move the median.
[[nodiscard]] inline double typical_cost(const windows& seen) {
  std::vector<double> costs;
  for (const auto& one : seen) costs.push_back(one.ns_per_operation());
  return median(std::move(costs));
}

/// Returns the cost of an operation where windows differ because the subject grows: all of them count.
[[nodiscard]] inline double mean_cost(const windows& seen) {
  double ns = 0;
  double operations = 0;
  for (const auto& one : seen) {
    ns += one.ns();
    operations += static_cast<double>(one.operations);
  }
  return operations == 0 ? 0 : ns / operations;
}

/// The result of one measurement.
struct figure {
  double ns_per_operation = 0;        ///< on a thread, if all were equally fast
  double operations_per_us = 0;       ///< of all threads together
  std::size_t windows = 0;            ///< that were measured
  std::size_t undisturbed = 0;        ///< of which none was disturbed; if 0, all were used
  std::vector<double> ns_of_threads;  ///< the same for each thread
};

/// Computes the rates in the time from the first begin to the last end. Nothing else is right where threads take turns:
/// the sum of the threads' rates in their turns is more than the CPUs can do.
[[nodiscard]] inline figure figure_by_the_clock(const run_windows& measured) {
  figure made;
  const auto wall = wall_ns(measured);
  for (const auto& thread : measured) {
    const auto operations = static_cast<double>(operations_of(thread));
    made.ns_of_threads.push_back(operations == 0 ? 0 : wall / operations);
    made.operations_per_us += wall == 0 ? 0 : 1000 * operations / wall;
    made.windows += thread.size();
  }
  return made;
}

/// Computes the rates from windows, for threads that have a CPU each. `cost` is one of the functions above.
[[nodiscard]] inline figure figure_by_windows(const run_windows& all, double (*cost)(const windows&)) {
  figure made;
  const auto kept = undisturbed(all);
  const bool enough = each_has_some(kept);
  for (std::size_t thread = 0; thread < all.size(); ++thread) {
    const auto ns = enough ? cost(kept[thread]) : mean_cost(all[thread]);
    made.ns_of_threads.push_back(ns);
    made.operations_per_us += ns == 0 ? 0 : 1000 / ns;
    made.windows += all[thread].size();
    made.undisturbed += enough ? kept[thread].size() : 0;
  }
  return made;
}

/// Returns the figure of a measurement. `in_turn`: several threads share a CPU.
[[nodiscard]] inline figure figure_of(const run_windows& measured, double (*cost)(const windows&), bool in_turn) {
  const auto together = side_by_side(measured);
  auto made = in_turn || !each_has_some(together) ? figure_by_the_clock(measured) : figure_by_windows(together, cost);
  // Not the mean of the threads' costs: one starving thread would determine it, whatever the others get done.
  if (made.operations_per_us > 0)
    made.ns_per_operation = 1000 * static_cast<double>(measured.size()) / made.operations_per_us;
  return made;
}

/// Returns the median of several measurements.
[[nodiscard]] inline figure median_figure(std::vector<figure> runs) {
  return median_by(std::move(runs), &figure::ns_per_operation);
}

}  // namespace bench

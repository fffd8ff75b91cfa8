// SPDX-License-Identifier: BSD-3-Clause
// Adds up the operations of several threads, also when the threads took turns.
#include "bench/sampling_windows.hpp"

#include <gtest/gtest.h>

namespace bench::windows_test {
namespace {

constexpr std::uint64_t operations_of_a_window = 100'000;  // in a millisecond, that is 100 a microsecond

window at_ms(std::uint64_t begin, bool disturbed = false) {
  return {begin * window_ns, (begin + 1) * window_ns, operations_of_a_window, disturbed};
}

TEST(windows, throughput_of_concurrent_threads_is_summed) {
  const run_windows run{{at_ms(0), at_ms(1), at_ms(2)}, {at_ms(0), at_ms(1), at_ms(2)}};
  const auto seen = figure_of(run, typical_cost, false);
  EXPECT_DOUBLE_EQ(seen.operations_per_us, 200);
  EXPECT_DOUBLE_EQ(seen.ns_per_operation, 10);
  EXPECT_EQ(seen.undisturbed, 6U);
}

TEST(windows, throughput_of_consecutive_threads_is_not_summed) {
  const run_windows run{{at_ms(0), at_ms(1)}, {at_ms(2), at_ms(3)}, {at_ms(4), at_ms(5)}, {at_ms(6), at_ms(7)}};
  for (const bool in_turn : {false, true}) {
    const auto seen = figure_of(run, typical_cost, in_turn);
    EXPECT_DOUBLE_EQ(seen.operations_per_us, 100);
    EXPECT_DOUBLE_EQ(seen.ns_per_operation, 40);
    EXPECT_EQ(seen.undisturbed, 0U);
  }
}

TEST(windows, throughput_of_threads_that_alternate_on_a_cpu_is_not_summed) {
  const run_windows run{{at_ms(0), at_ms(2), at_ms(4)}, {at_ms(1), at_ms(3), at_ms(5)}};
  const auto seen = figure_of(run, typical_cost, true);
  EXPECT_DOUBLE_EQ(seen.operations_per_us, 100);
  EXPECT_EQ(seen.ns_of_threads, (std::vector<double>{20, 20}));
}

TEST(windows, time_off_the_cpu_counts_where_threads_take_turns) {
  window waited = at_ms(0, true);
  waited.end = 4 * window_ns;
  const auto seen = figure_of({{waited}, {at_ms(1), at_ms(2)}}, typical_cost, true);
  EXPECT_DOUBLE_EQ(seen.operations_per_us, 75);
}

TEST(windows, disturbed_windows_are_left_out_of_all_threads) {
  window slow = at_ms(1, true);
  slow.operations = 1;
  const auto seen = figure_of({{at_ms(0), slow, at_ms(2)}, {at_ms(0), at_ms(1), at_ms(2)}}, mean_cost, false);
  EXPECT_DOUBLE_EQ(seen.operations_per_us, 200);
  EXPECT_EQ(seen.windows, 6U);
  EXPECT_EQ(seen.undisturbed, 4U);
}

TEST(windows, idle_thread_does_not_change_the_figures) {
  const auto seen = figure_of({{at_ms(0), at_ms(1)}, {}}, mean_cost, false);
  EXPECT_DOUBLE_EQ(seen.operations_per_us, 100);
  EXPECT_DOUBLE_EQ(figure_of({{}, {}}, mean_cost, false).operations_per_us, 0);
}

}  // namespace
}  // namespace bench::windows_test

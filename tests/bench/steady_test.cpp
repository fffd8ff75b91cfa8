// SPDX-License-Identifier: BSD-3-Clause
// Threads that share a CPU do together as many operations as that CPU can, and each gets its share of the time.
#include "bench/steady_state.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace bench::steady_test {
namespace {

constexpr std::uint64_t cpu_ns = 20'000;

std::uint64_t cpu_time_of_this_thread() noexcept {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(used.tv_nsec);
}

// Every operation keeps the CPU busy for `cpu_ns`, so a CPU cannot do more than one in that time, whatever else runs.
struct busy {
  struct user_type {
    std::uint64_t get(const request&) noexcept {
      for (const auto end = cpu_time_of_this_thread() + cpu_ns; cpu_time_of_this_thread() < end;) {
      }
      return 1;
    }
    std::uint64_t key(std::uint64_t held) noexcept { return held; }
    void put(std::uint64_t&) noexcept {}
  };

  busy(const region_set&, const setup&) {}
  user_type user() { return {}; }
};

outcome measured_on_one_cpu(unsigned threads, double seconds) {
  outcome seen;
  std::jthread([&] {
    stay_on(usable_cpus().front());
    const region_set regions(1);
    busy subject(regions, setup{});
    const std::vector<requests> wanted(threads, requests_for(regions, pattern::same, 0, 1));
    parameters how;
    how.repeats = 1;
    how.seconds = seconds;
    seen = measure_steady(how, subject, wanted);
  }).join();
  return seen;
}

TEST(steady, throughput_of_threads_on_one_cpu_is_at_most_that_of_the_cpu) {
  if (usable_cpus().empty()) GTEST_SKIP() << "the system does not tell its CPUs";
  for (const unsigned threads : {2U, 4U, 16U}) {
    const auto seen = measured_on_one_cpu(threads, 0.001);  // less than a time slice, so the threads run in turn
    EXPECT_GT(seen.median.operations_per_us, 0) << threads;
    EXPECT_LE(seen.median.operations_per_us, 1000.0 / cpu_ns) << threads;
    EXPECT_GE(seen.median.ns_per_operation, threads * double{cpu_ns}) << threads;
  }
}

TEST(steady, run_lasts_longer_where_threads_share_a_cpu) {
  if (usable_cpus().empty()) GTEST_SKIP() << "the system does not tell its CPUs";
  constexpr double seconds = 0.02;
  for (const unsigned threads : {1U, 4U}) {
    const auto begin = now_ns();
    static_cast<void>(measured_on_one_cpu(threads, seconds));
    EXPECT_GE(static_cast<double>(now_ns() - begin), threads * seconds * 1e9);
  }
}

}  // namespace
}  // namespace bench::steady_test

// SPDX-License-Identifier: BSD-3-Clause
// The rate limit of background registration, on a clock of the test's own.
#include "bulk/rate_limit.hpp"

#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace pinfold::testing::rate_limit_test {
namespace {

using namespace std::chrono_literals;
using detail::rate_limit;
using time_point = rate_limit::clock::time_point;

constexpr std::uint64_t mib = 1U << 20U;
constexpr time_point start{1h};

TEST(rate_limit, no_limit_lets_every_piece_begin_at_once) {
  rate_limit limit(0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.reserve(UINT64_MAX, start), start);
}

TEST(rate_limit, pieces_that_come_together_begin_one_after_the_other) {
  rate_limit limit(100 * mib);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.reserve(50 * mib, start), start + i * 500ms);
}

TEST(rate_limit, a_piece_that_comes_late_begins_at_once_and_saves_nothing_up) {
  rate_limit limit(100 * mib);
  EXPECT_EQ(limit.reserve(100 * mib, start), start);
  EXPECT_EQ(limit.reserve(100 * mib, start + 1h), start + 1h);
  EXPECT_EQ(limit.reserve(100 * mib, start + 1h), start + 1h + 1s) << "an hour without pieces was saved up";
}

TEST(rate_limit, a_piece_counts_with_its_own_size) {
  rate_limit limit(100 * mib);
  EXPECT_EQ(limit.reserve(300 * mib, start), start);
  EXPECT_EQ(limit.reserve(1 * mib, start + 1s), start + 3s);
  EXPECT_EQ(limit.reserve(1 * mib, start + 1s), start + 3s + 10ms);
}

TEST(rate_limit, absurd_rates_do_not_overflow) {
  rate_limit slow(1);
  EXPECT_EQ(slow.reserve(UINT64_MAX, start), start);
  for (int i = 0; i < 3; ++i) EXPECT_GT(slow.reserve(UINT64_MAX, start), start + 24h * 365 * 100);
  rate_limit fast(UINT64_MAX);
  EXPECT_EQ(fast.reserve(1, start), start);
  EXPECT_EQ(fast.reserve(1, start), start);
}

TEST(rate_limit, forgotten_times_are_free) {
  rate_limit limit(1);
  EXPECT_EQ(limit.reserve(mib, start), start);
  limit.forget();
  EXPECT_EQ(limit.reserve(mib, start), start);
}

TEST(rate_limit, threads_get_times_of_their_own) {
  rate_limit limit(mib);
  std::mutex mutex;
  std::set<time_point> seen;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 1000; ++k) {
          const auto begin = limit.reserve(mib, start);
          const std::scoped_lock guard(mutex);
          seen.insert(begin);
        }
      });
  }
  EXPECT_EQ(seen.size(), 4000U);
  EXPECT_EQ(*seen.rbegin(), start + 3999s);
}

}  // namespace
}  // namespace pinfold::testing::rate_limit_test

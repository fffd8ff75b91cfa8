// SPDX-License-Identifier: BSD-3-Clause
// The budget and the shares of it, compared with one number: R12.
#include "core/budget.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pinfold::testing::budget_shares_test {
namespace {

using core::budget;

constexpr std::size_t most_bytes = 10'000;
constexpr std::size_t most_count = 300;
constexpr std::size_t shares = 8;

/// What the engine does under mutexes when a share finds no room.
void gather(budget& all) {
  all.tighten();
  for (std::size_t i = 0; i < shares; ++i) all.of(i).give_rest();
  all.say_gathered();
}

bool take(budget& all, std::size_t by, std::size_t bytes) {
  if (all.of(by).take(bytes, 1)) return true;
  if (all.gathered()) return false;
  gather(all);
  return all.of(by).take(bytes, 1);
}

struct taken {
  std::size_t by;
  std::size_t bytes;
};

TEST(budget_shares, R12_a_request_is_refused_only_if_there_is_no_room) {
  std::mt19937_64 random(test_seed());
  budget all(most_bytes, most_count, shares);
  std::vector<taken> out;
  std::size_t used = 0;
  std::size_t refused = 0;
  for (int step = 0; step < 200'000; ++step) {
    const bool grows = random() % 100 < (step / 20'000 % 2 == 0 ? 60U : 40U);
    if (grows) {
      const taken next{random() % shares, 1 + random() % (random() % 50 == 0 ? most_bytes / 4 : 64)};
      const bool fits = used + next.bytes <= most_bytes && out.size() < most_count;
      ASSERT_EQ(take(all, next.by, next.bytes), fits) << step;
      refused += fits ? 0U : 1U;
      if (!fits) continue;
      used += next.bytes;
      out.push_back(next);
    } else if (!out.empty()) {
      std::swap(out[random() % out.size()], out.back());
      all.of(out.back().by).give(out.back().bytes, 1);
      used -= out.back().bytes;
      out.pop_back();
    }
    ASSERT_EQ(all.bytes_now(), used);
    ASSERT_EQ(all.count_now(), out.size());
    ASSERT_GE(all.peak_bytes(), used);
    ASSERT_LE(all.peak_bytes(), most_bytes);
  }
  EXPECT_GT(refused, 1000U);
}

TEST(budget_shares, R12_what_is_charged_beyond_the_limit_is_paid_before_room_is_taken) {
  for (const bool gathered : {false, true}) {
    budget all(100, 10, shares);
    ASSERT_TRUE(take(all, 0, 60));
    if (gathered) gather(all);
    all.of(1).charge(70);
    EXPECT_EQ(all.bytes_now(), 130U);
    EXPECT_FALSE(take(all, 2, 1));
    all.of(0).give(20, 0);
    EXPECT_FALSE(take(all, 2, 1)) << "10 bytes too many";
    all.of(0).give(20, 0);
    EXPECT_TRUE(take(all, 2, 10));
    EXPECT_FALSE(take(all, 3, 1));
    EXPECT_EQ(all.bytes_now(), 100U);
  }
}

TEST(budget_shares, a_budget_that_is_half_free_again_is_no_longer_tight) {
  budget all(most_bytes, most_count, shares);
  EXPECT_FALSE(all.gathered());
  ASSERT_TRUE(take(all, 0, most_bytes));
  EXPECT_FALSE(take(all, 1, 1));
  EXPECT_TRUE(all.gathered());
  all.of(0).give(most_bytes / 2 - 1, 0);
  EXPECT_TRUE(all.gathered());
  all.of(0).give(1, 0);
  EXPECT_FALSE(all.gathered());
}

}  // namespace
}  // namespace pinfold::testing::budget_shares_test

// SPDX-License-Identifier: BSD-3-Clause
// Checks the merging of a batch's ranges (R26): everything is covered, nothing is added, and no range is too big.
#include "support/host/settings.hpp"

#include <pinfold/detail/batch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pinfold::testing::batch_plan_model_test {
namespace {

// Returns whether the requested ranges that went to one merged range cover it without a gap.
bool seamless(const range& merged, std::vector<range> members) {
  std::sort(members.begin(), members.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  auto reached = merged.begin;
  for (const auto& one : members) {
    if (one.begin > reached) return false;
    reached = std::max(reached, one.end);
  }
  return reached == merged.end;
}

TEST(batch_plan_model, R26_plan_covers_exactly_the_requested_bytes_within_the_limits) {
  std::mt19937_64 random(test_seed());
  for (std::uint64_t round = 0; round < model_steps() / 50; ++round) {
    std::vector<range> asked(random() % 40);
    for (auto& one : asked) {
      one.begin = 100 + random() % 400;
      one.end = one.begin + 1 + random() % 30;
    }
    const std::size_t most = random() % 3 == 0 ? 20 + random() % 60 : SIZE_MAX;
    const std::size_t page = random() % 2 == 0 ? 1 : 16;
    const detail::piece_limits limits{.max_bytes = most, .granularity = page};
    const auto plan = detail::merge_ranges(asked, limits);
    ASSERT_EQ(plan.member.size(), asked.size());
    std::vector<std::vector<range>> members(plan.merged.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ASSERT_TRUE(plan.merged.at(plan.member[i]).contains(asked[i]));
      members[plan.member[i]].push_back(asked[i]);
    }
    for (std::size_t i = 0; i < plan.merged.size(); ++i) {
      ASSERT_TRUE(seamless(plan.merged[i], members[i]));
      ASSERT_TRUE(limits.fits(plan.merged[i]) || members[i].size() == 1);
      const bool crossing = i > 0 && plan.merged[i].begin < plan.merged[i - 1].end;
      ASSERT_TRUE(!crossing || most != SIZE_MAX) << "overlapping ranges are merged where there is no limit";
    }
  }
}

TEST(batch_plan_model, R25_pieces_cover_the_range_and_fit) {
  std::mt19937_64 random(test_seed());
  for (std::uint64_t round = 0; round < model_steps() / 50; ++round) {
    const std::uintptr_t begin = random() % 3 == 0 ? UINTPTR_MAX - 2000 + random() % 1000 : random() % 1000;
    const range whole{begin, begin + 1 + random() % 1000};
    const std::size_t each = 1 + random() % 200;
    const std::size_t page = std::size_t{1} << random() % 6;
    const detail::piece_limits limits{.max_bytes = page + random() % 100, .granularity = page};
    auto reached = whole.begin;
    for (const range& piece : detail::cut(whole, each, limits)) {
      ASSERT_EQ(piece.begin, reached);
      ASSERT_FALSE(piece.empty());
      ASSERT_LE(piece.size(), each);
      ASSERT_TRUE(limits.fits(piece)) << piece.begin << " " << piece.size() << " of " << limits.max_bytes;
      reached = piece.end;
    }
    ASSERT_EQ(reached, whole.end);
  }
}

}  // namespace
}  // namespace pinfold::testing::batch_plan_model_test

// SPDX-License-Identifier: BSD-3-Clause
// The range index against a list: nested, adjacent, equal, one-byte and huge ranges (invariant 1 of the protocol).
#include "support/fixtures/index_pair.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <random>

namespace pinfold::testing::range_index_model_test {
namespace {

range some_range(std::mt19937_64& random) {
  static constexpr std::uintptr_t lengths[] = {
      1, 2, 64, 4096, 65536, std::uintptr_t{5} << 32U, std::uintptr_t{1} << 45U};
  const auto bytes = lengths[random() % std::size(lengths)];
  const auto begin = random() % 3 == 0 ? random() % 256 : (random() % 64) * (std::uintptr_t{1} << (random() % 40));
  return {begin, begin + bytes};
}

TEST(range_index_model, index_finds_what_a_list_finds) {
  std::mt19937_64 random(test_seed());
  index_pair both;
  for (std::uint64_t step = 0; step < model_steps() / 20; ++step) {
    const peer_id peer{random() % 3};
    if (random() % 5 < 3 && both.size() < 200) {
      both.insert(peer, some_range(random));
    } else {
      both.erase(random());
    }
    ASSERT_TRUE(both.agree_on({random() % 3}, some_range(random))) << "step " << step;
    ASSERT_TRUE(both.agree_on(peer, {0, UINTPTR_MAX})) << "step " << step;
    ASSERT_TRUE(step % 64 != 0 || both.sound()) << "step " << step;
  }
}

// Enough entries for several levels; few places, so that some ranges are equal; few peers or many.
TEST(range_index_model, large_index_finds_what_a_list_finds) {
  std::mt19937_64 random(test_seed());
  for (const std::uint64_t peers : {1U, 5U, 500U}) {
    index_pair both;
    const auto some_place = [&] {
      const auto begin = (random() % 3 == 0 ? UINTPTR_MAX / 4096 * 4096 - 4096 * 2000 : 0) + random() % 1000 * 4096;
      return range{begin, begin + (random() % 50 == 0 ? 1000 : 1 + random() % 2) * 4096 - random() % 2};
    };
    for (std::uint64_t step = 0; step < model_steps() / 20; ++step) {
      const bool growing = step / 1500 % 2 == 0;
      if (random() % 10 < (growing ? 9U : 1U)) {
        both.insert({random() % peers}, some_place());
      } else {
        both.erase(random());
      }
      if (step % 16 != 0) continue;
      ASSERT_TRUE(both.agree_on({random() % peers}, some_place())) << "step " << step;
      ASSERT_TRUE(step % 64 != 0 || both.sound()) << "step " << step;
    }
  }
}

TEST(range_index_model, ranges_beyond_four_gigabytes_are_ordered_correctly) {
  index_pair both;  // the differences of these do not fit an int: Open MPI's tree loses such ranges
  for (std::uintptr_t i = 0; i < 64; ++i) both.insert({1}, {i << 33U, (i << 33U) + 1});
  for (std::uintptr_t i = 0; i < 64; ++i) EXPECT_TRUE(both.agree_on({1}, {i << 33U, (i << 33U) + 1}));
  EXPECT_TRUE(both.sound());
}

TEST(range_index_model, nested_ranges_are_all_found) {
  index_pair both;
  for (std::uintptr_t i = 0; i < 100; ++i) both.insert({1}, {1000 + i, 3000 - i});
  EXPECT_TRUE(both.agree_on({1}, {2000, 2001}));
  EXPECT_TRUE(both.agree_on({1}, {2999, 3000}));
  EXPECT_TRUE(both.agree_on({1}, {3000, 3001}));
  EXPECT_TRUE(both.agree_on({2}, {2000, 2001}));
}

}  // namespace
}  // namespace pinfold::testing::range_index_model_test

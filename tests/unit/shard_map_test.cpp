// SPDX-License-Identifier: BSD-3-Clause
// Which shards a range concerns: none that has an entry around it, or over it, is left out.
#include "core/shard_map.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pinfold::testing::shard_map_test {
namespace {

using core::shard_map;

bool has(core::shard_set all, std::size_t shard) { return (all >> shard & 1U) != 0; }

range some_range(std::mt19937_64& random) {
  const auto bytes = 1 + random() % (std::uintptr_t{1} << random() % 44);
  const auto begin = random() % (std::uintptr_t{1} << (20 + random() % 27));
  return {begin, begin + bytes};
}

/// Returns a part of the range.
range part_of(const range& whole, std::mt19937_64& random) {
  const auto begin = whole.begin + random() % whole.size();
  return {begin, begin + 1 + random() % (whole.end - begin)};
}

TEST(shard_map, containing_and_overlapping_ranges_are_found) {
  std::mt19937_64 random(test_seed());
  for (const std::size_t shards : {1U, 2U, 8U, 64U}) {
    shard_map map(shards);
    for (int step = 0; step < 20'000; ++step) {
      const auto whole = some_range(random);
      map.use(shard_map::level_of(whole));
      const auto home = map.shard_of(whole);
      ASSERT_LT(home, shards);
      const auto part = part_of(whole, random);
      ASSERT_TRUE(has(map.containing(part), home));
      ASSERT_TRUE(has(map.overlapping(part), home));
      const range beside{part.begin - std::min(part.begin, random() % 10'000'000), part.begin + 1};
      ASSERT_TRUE(has(map.overlapping(beside), home));
      ASSERT_EQ(map.overlapping({0, UINTPTR_MAX}) & ~map.all(), 0U);
    }
  }
}

TEST(shard_map, a_cell_size_that_is_not_in_use_costs_no_look) {
  shard_map map(64);
  const range small{0x10000, 0x20000};
  EXPECT_EQ(map.containing(small), 0U);
  map.use(shard_map::level_of(small));
  EXPECT_EQ(map.containing(small), std::uint64_t{1} << map.shard_of(small));
}

TEST(shard_map, neighbouring_cells_use_all_shards_alike) {
  const shard_map map(16);
  std::array<int, 16> used{};
  for (std::uintptr_t i = 0; i < 1600; ++i)
    ++used.at(map.shard_of({i * shard_map::smallest_cell, i * shard_map::smallest_cell + 1}));
  EXPECT_GT(*std::ranges::min_element(used), 50);
  EXPECT_LT(*std::ranges::max_element(used), 200);
}

// Two threads that walk through memory side by side do not meet in each shard once they met in one.
TEST(shard_map, two_walks_that_meet_part_again) {
  const shard_map map(16);
  const auto shard_of = [&](std::uintptr_t cell) {
    return map.shard_of({cell * shard_map::smallest_cell, cell * shard_map::smallest_cell + 1});
  };
  for (std::uintptr_t apart = 1; apart < 100'000; apart = apart * 3 + 1) {
    int meetings = 0;
    for (std::uintptr_t cell = 0; cell < 1000; ++cell) meetings += shard_of(cell) == shard_of(cell + apart) ? 1 : 0;
    EXPECT_LT(meetings, 200) << apart;
  }
}

}  // namespace
}  // namespace pinfold::testing::shard_map_test

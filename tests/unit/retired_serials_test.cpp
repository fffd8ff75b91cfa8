// SPDX-License-Identifier: BSD-3-Clause
// What an importer with carried answers remembers of memory that it must not open again.
#include "release/retired_serials.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace pinfold::release::retired_serials_test {

TEST(retired_serials, agree_with_a_set_in_any_order) {
  std::mt19937 random(7);
  retired_serials set;
  std::set<std::pair<std::uint64_t, std::uint64_t>> expected;
  const auto draw = [&] { return release_id{1 + random() % 2, random() % 1000}; };
  for (int i = 0; i < 5'000; ++i) {
    const auto id = draw();
    set.add(id);
    expected.emplace(id.exporter, id.serial);
    const auto other = draw();
    ASSERT_EQ(set.contains(other), expected.contains({other.exporter, other.serial}));
  }
  for (std::uint64_t serial = 0; serial < 1024; ++serial)
    ASSERT_EQ(set.contains({1, serial}), expected.contains({1, serial})) << serial;
}

TEST(retired_serials, of_adjacent_memory_take_one_node) {
  std::vector<std::uint64_t> serials(64 * 100);
  for (std::size_t i = 0; i < serials.size(); ++i) serials[i] = i;
  std::ranges::shuffle(serials, std::mt19937(7));
  retired_serials set;
  for (const auto serial : serials) set.add({1, serial});
  EXPECT_EQ(set.nodes(), 1U);
}

TEST(retired_serials, of_memory_between_that_of_others_take_a_node_for_64) {
  retired_serials set;
  for (std::uint64_t serial = 0; serial < 640'000; serial += 2) set.add({1, serial});
  EXPECT_EQ(set.nodes(), 10'000U);
}

}  // namespace pinfold::release::retired_serials_test

// SPDX-License-Identifier: BSD-3-Clause
// The memory that is registered, by pages, which monitors ask for before they post an event (R35).
#include "invalidation/registered_filter.hpp"

#include "support/host/once_within.hpp"
#include "support/host/settings.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace pinfold::invalidation::registered_filter_test {
namespace {

TEST(registered_filter, touches_only_added_and_not_removed_ranges) {
  registered_filter& watched = registered_filter::here();
  const range low{0x7000'0000'0000, 0x7000'0000'3000};
  const range wide{0x6fff'fff0'0000, 0x7002'0000'0000};
  EXPECT_FALSE(watched.touches(low));
  ASSERT_TRUE(watched.prepare(low) && watched.prepare(wide));
  watched.add(low);
  EXPECT_TRUE(watched.touches({0x7000'0000'2fff, 0x7000'0000'3000}));
  EXPECT_TRUE(watched.touches({0, UINTPTR_MAX}));
  EXPECT_TRUE(watched.touches({0x6000'0000'0000, 0x7000'0000'0001}));
  EXPECT_FALSE(watched.touches({0x6000'0000'0000, 0x7000'0000'0000}));
  EXPECT_FALSE(watched.touches({0x7000'0000'3000, 0x7001'0000'0000}));
  watched.add(wide);
  watched.remove(low);
  EXPECT_TRUE(watched.touches({0x7001'ffff'ffff, 0x7002'0000'0000}));
  watched.remove(wide);
  EXPECT_FALSE(watched.touches({0, UINTPTR_MAX}));
}

TEST(registered_filter, saturated_counter_is_not_decremented) {
  registered_filter& watched = registered_filter::here();
  const range spot{0x5000'0000'0000, 0x5000'0000'1000};
  ASSERT_TRUE(watched.prepare(spot));
  for (int i = 0; i < 300; ++i) watched.add(spot);
  for (int i = 0; i < 300; ++i) watched.remove(spot);
  EXPECT_TRUE(watched.touches(spot)) << "more were added than it can count: it must not forget one";
  EXPECT_FALSE(watched.touches({0x5000'0000'1000, 0x5000'0000'2000})) << "the next page's count is another";
}

TEST(registered_filter, range_beyond_the_counters_is_touched) {
  registered_filter& watched = registered_filter::here();
  const range high{UINTPTR_MAX - 4096, UINTPTR_MAX};
  EXPECT_FALSE(watched.touches(high));
  ASSERT_TRUE(watched.prepare(high));
  watched.add(high);
  EXPECT_TRUE(watched.touches(high));
  watched.remove(high);
  const range granule{0x8000'0000'0000, 0x8000'0001'0000};
  ASSERT_TRUE(watched.prepare(granule));
  watched.add(granule);
  EXPECT_TRUE(watched.touches(granule));
  watched.remove(granule);
}

TEST(registered_filter, neighbouring_pages_do_not_touch_a_registration) {
  registered_filter& watched = registered_filter::here();
  const range kept{0x4000'0000'4000, 0x4000'0000'6000};
  ASSERT_TRUE(watched.prepare(kept));
  watched.add(kept);
  EXPECT_FALSE(watched.touches({0x4000'0000'3000, 0x4000'0000'4000}));
  EXPECT_FALSE(watched.touches({0x4000'0000'6000, 0x4000'0001'0000}));
  EXPECT_TRUE(watched.touches({0x4000'0000'5fff, 0x4000'0000'6000}));
  EXPECT_TRUE(watched.touches({0x4000'0000'4001, 0x4000'0000'4002})) << "the page is registered";
  watched.remove({kept.begin + 1, kept.begin + 1});
  EXPECT_TRUE(watched.touches({kept.begin, kept.begin + 1})) << "an empty range counts nothing";
  watched.remove(kept);
  EXPECT_FALSE(watched.touches({0x4000'0000'0000, 0x4000'0001'0000}));
}

TEST(registered_filter, R59_huge_range_costs_time_per_gibibyte_only) {
  registered_filter& watched = registered_filter::here();
  const range absurd{0x1000'0000'1000, 0x1000'0000'1000 + (std::uintptr_t{1} << 45U)};
  EXPECT_TRUE(testing::once_within(std::chrono::milliseconds(500), [&] {
    ASSERT_TRUE(watched.prepare(absurd));
    watched.add(absurd);
    EXPECT_TRUE(watched.touches({0x2000'0000'0000, 0x2000'0000'1000}));
    EXPECT_TRUE(watched.touches({absurd.end - 1, absurd.end}));
    EXPECT_FALSE(watched.touches({absurd.end, absurd.end + 4096}));
    watched.remove(absurd);
    EXPECT_FALSE(watched.touches(absurd));
  }));
}

// The reference: a list of registrations, which is searched as a whole.
template <class F>
void compare_with_list(std::mt19937_64& random, const range& around, F&& some) {
  registered_filter& watched = registered_filter::here();
  constexpr std::uintptr_t page = 4096;
  std::vector<range> all;
  const auto out = [](const range& one) { return range{one.begin / page * page, (one.end + page - 1) / page * page}; };
  for (int step = 0; step < 20'000; ++step) {
    if (all.size() < 4 || (all.size() < 14 && random() % 2 == 0)) {  // fewer than fill a page's count
      all.push_back(some());
      ASSERT_TRUE(watched.prepare(all.back()));
      watched.add(all.back());
    } else {
      std::swap(all[random() % all.size()], all.back());
      watched.remove(all.back());
      all.pop_back();
    }
    const range asked = some();
    const bool expected =
        std::any_of(all.begin(), all.end(), [&](const range& one) { return out(one).overlaps(out(asked)); });
    ASSERT_EQ(watched.touches(asked), expected) << std::hex << asked.begin << ' ' << asked.end << " at step " << step;
  }
  for (const range& one : all) watched.remove(one);
  EXPECT_FALSE(watched.touches(around));
}

TEST(registered_filter, R35_filter_agrees_with_a_list_of_registrations) {
  constexpr std::uintptr_t base = 0x3000'0000'0000;
  std::mt19937_64 random(testing::test_seed());
  compare_with_list(random, {base, base + (std::uintptr_t{1} << 36U)}, [&] {
    const auto bits = random() % 34;  // from a byte to 16 GiB
    const auto begin = base + (random() & ((std::uintptr_t{1} << (12 + random() % 23)) - 1));
    return range{begin, begin + 1 + (random() & ((std::uintptr_t{1} << bits) - 1))};
  });
}

// At random, a range seldom begins or ends where a unit does: these do, or a byte or a page beside it.
TEST(registered_filter, R35_filter_agrees_with_a_list_at_the_edges_of_units) {
  constexpr std::uintptr_t base = 0x3100'0000'0000;
  std::mt19937_64 random(testing::test_seed());
  for (const unsigned shift : {12U, 16U, 24U, 32U}) {
    const auto edge = [&](std::uintptr_t from, std::uint64_t units) {
      constexpr std::array<std::intptr_t, 5> beside{0, -1, 1, -4096, 4096};
      const auto moved = random() % 2 == 0 ? 0 : beside[random() % beside.size()];
      return from + (random() % units << shift) + static_cast<std::uintptr_t>(moved);
    };
    compare_with_list(random, {base, base + (std::uintptr_t{1} << 36U)}, [&] {
      const auto begin = edge(base + (std::uintptr_t{1} << 34U), 4);
      return range{begin, std::max(begin + 1, edge((begin >> shift << shift) + (std::uintptr_t{1} << shift), 3))};
    });
  }
}

}  // namespace
}  // namespace pinfold::invalidation::registered_filter_test

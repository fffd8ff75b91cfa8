// SPDX-License-Identifier: BSD-3-Clause
// The choice of slots in a buffer table: long runs for batches, however fragmented the table is (R26).
#include "registrars/io_uring/slots.hpp"

#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace pinfold::testing::io_uring_slots_test {
namespace {

using uring::run;
using uring::slot_table;

void fill(slot_table& table) {
  for (unsigned left = table.size(); left > 0;) {
    const auto got = table.take(left);
    table.commit(got, got.count);
    left -= got.count;
  }
}

void empty(slot_table& table, unsigned first, unsigned count) {
  for (unsigned i = first; i < first + count; ++i) {
    ASSERT_TRUE(table.leave(i));
    table.emptied(i);
  }
}

unsigned takes_for(slot_table& table, unsigned slots) {
  unsigned takes = 0;
  for (unsigned left = slots; left > 0; ++takes) {
    const auto got = table.take(left);
    if (got.count == 0) return 0;
    table.commit(got, got.count);
    left -= got.count;
  }
  return takes;
}

// Leaves 50 slots free, each alone.
void fill_and_fragment(slot_table& table) {
  fill(table);
  for (unsigned i = 0; i < 100; i += 2) empty(table, i, 1);
}

TEST(io_uring_slots, R26_batch_takes_a_run_that_is_long_enough) {
  slot_table table(300);
  fill_and_fragment(table);
  empty(table, 130, 32);
  empty(table, 200, 70);
  EXPECT_EQ(takes_for(table, 64), 1U);
  EXPECT_EQ(takes_for(table, 32), 1U);
  EXPECT_EQ(takes_for(table, 6 + 50), 51U);
  EXPECT_EQ(table.take(1).count, 0U);
}

TEST(io_uring_slots, R26_batch_takes_the_longest_runs_when_none_is_long_enough) {
  slot_table table(300);
  fill_and_fragment(table);
  empty(table, 110, 40);
  empty(table, 160, 30);
  EXPECT_EQ(takes_for(table, 64), 2U);
}

TEST(io_uring_slots, R26_run_is_not_cut_where_the_last_search_ended) {
  slot_table table(128);
  fill(table);
  empty(table, 0, 128);
  EXPECT_EQ(takes_for(table, 32), 1U);  // the next search begins here
  empty(table, 0, 32);
  fill(table);
  empty(table, 0, 100);
  EXPECT_EQ(takes_for(table, 100), 1U);
}

TEST(io_uring_slots, freed_slot_is_reused_last) {
  slot_table table(4);
  std::vector<unsigned> seen;
  for (int i = 0; i < 6; ++i) {
    const auto got = table.take(1);
    seen.push_back(got.first);
    table.commit(got, 1);
    empty(table, got.first, 1);
  }
  EXPECT_EQ(seen, (std::vector<unsigned>{0, 1, 2, 3, 0, 1}));
}

TEST(io_uring_slots, only_a_slot_in_use_can_be_left_and_only_once) {
  slot_table table(8);
  const auto got = table.take(4);
  EXPECT_FALSE(table.leave(0)) << "still being filled";
  table.commit(got, 2);
  EXPECT_FALSE(table.leave(2)) << "not filled";
  EXPECT_FALSE(table.leave(8));
  EXPECT_TRUE(table.leave(1));
  EXPECT_FALSE(table.leave(1)) << "another thread is at it";
  table.kept(1);
  EXPECT_TRUE(table.leave(1));
  table.emptied(1);
  EXPECT_EQ(table.take(8).count, 7U) << "all but the first";
}

// Computes the longest free run of at most that many slots, the slow way.
unsigned longest(const std::set<unsigned>& taken, unsigned size, unsigned most) {
  unsigned best = 0;
  unsigned now = 0;
  for (unsigned i = 0; i < size; ++i) {
    now = taken.contains(i) ? 0 : now + 1;
    best = std::max(best, now);
  }
  return std::min(best, most);
}

TEST(io_uring_slots, R26_agrees_with_a_set_after_every_step) {
  std::mt19937_64 random(test_seed());
  const unsigned size = 150;
  slot_table table(size);
  std::set<unsigned> taken;
  for (std::uint64_t step = 0; step < model_steps() / 10; ++step) {
    if (random() % 2 == 0 && !taken.empty()) {
      const auto victim = *std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ASSERT_TRUE(table.leave(victim));
      table.emptied(victim);
      taken.erase(victim);
      continue;
    }
    const auto most = static_cast<unsigned>(1 + random() % 70);
    const auto got = table.take(most);
    ASSERT_EQ(got.count, longest(taken, size, most));
    const auto good = static_cast<unsigned>(random() % (got.count + 1));
    table.commit(got, good);
    for (unsigned i = 0; i < good; ++i) ASSERT_TRUE(taken.insert(got.first + i).second);
  }
}

}  // namespace
}  // namespace pinfold::testing::io_uring_slots_test

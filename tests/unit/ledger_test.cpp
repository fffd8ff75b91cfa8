// SPDX-License-Identifier: BSD-3-Clause
// The pins in threads' ledgers add up, whichever thread gives them back.
#include "core/hints.hpp"

#include <pinfold/detail/ledger.hpp>

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace pinfold::testing::ledger_test {
namespace {

using detail::ledger;
using detail::record;

struct alignas(64) lone_record {
  record one;
};

TEST(ledger, one_thread_counts_up_and_down) {
  const auto some = std::make_unique<lone_record>();
  auto* mine = ledger::of_this_thread();
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(ledger::if_there(), mine);
  EXPECT_TRUE(mine->add(&some->one));
  EXPECT_TRUE(mine->add(&some->one));
  EXPECT_EQ(ledger::sum(&some->one), 2);
  EXPECT_TRUE(mine->subtract(&some->one));
  EXPECT_TRUE(mine->subtract(&some->one));
  EXPECT_EQ(ledger::sum(&some->one), 0);
}

TEST(ledger, pins_released_by_another_thread_cancel_out) {
  const auto some = std::make_unique<lone_record>();
  auto* mine = ledger::of_this_thread();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(mine->add(&some->one));
  std::thread([&] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ledger::of_this_thread()->subtract(&some->one));
  }).join();
  EXPECT_EQ(ledger::sum(&some->one), 0) << "the other thread has ended";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(mine->subtract(&some->one));
  EXPECT_EQ(ledger::sum(&some->one), -3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(mine->add(&some->one));
}

TEST(ledger, a_slot_in_use_is_not_taken) {
  constexpr std::size_t slots = 1024;
  auto many = std::make_unique<std::array<std::array<std::byte, 32>, slots + 1>>();
  auto* first = new (&many->front()) record;
  auto* same_place = new (&many->back()) record;
  auto* mine = ledger::of_this_thread();
  ASSERT_TRUE(mine->add(first));
  EXPECT_FALSE(mine->add(same_place));
  EXPECT_FALSE(mine->subtract(same_place));
  ASSERT_TRUE(mine->subtract(first));
  EXPECT_TRUE(mine->add(same_place));
  EXPECT_EQ(ledger::sum(first), 0);
  EXPECT_EQ(ledger::sum(same_place), 1);
  EXPECT_TRUE(mine->subtract(same_place));
}

TEST(ledger, pin_moves_from_the_threads_own_cell_to_its_slot) {
  const auto some = std::make_unique<lone_record>();
  auto* mine = ledger::of_this_thread();
  auto& cell = mine->cell_of(&some->one);
  cell.store(reinterpret_cast<std::uintptr_t>(&some->one));
  std::thread([&] {
    EXPECT_FALSE(ledger::of_this_thread()->move_to_slot(cell, &some->one)) << "another thread's cell";
  }).join();
  EXPECT_NE(cell.load(), 0U);
  ASSERT_TRUE(mine->move_to_slot(cell, &some->one));
  EXPECT_EQ(cell.load(), 0U);
  EXPECT_EQ(ledger::sum(&some->one), 1);
  EXPECT_TRUE(mine->subtract(&some->one));
}

TEST(ledger, pin_stays_in_its_cell_if_the_slot_is_in_use) {
  constexpr std::size_t slots = 1024;
  auto many = std::make_unique<std::array<std::array<std::byte, 32>, slots + 1>>();
  auto* first = new (&many->front()) record;
  auto* same_place = new (&many->back()) record;
  auto* mine = ledger::of_this_thread();
  auto& cell = mine->cell_of(same_place);
  cell.store(reinterpret_cast<std::uintptr_t>(same_place));
  ASSERT_TRUE(mine->add(first));
  EXPECT_FALSE(mine->move_to_slot(cell, same_place));
  EXPECT_EQ(cell.load(), reinterpret_cast<std::uintptr_t>(same_place));
  EXPECT_EQ(ledger::sum(same_place), 1);
  ASSERT_TRUE(mine->subtract(first));
  cell.store(0);
}

TEST(ledger, counts_do_not_overflow) {
  const auto some = std::make_unique<lone_record>();
  auto* mine = ledger::of_this_thread();
  std::int64_t held = 0;
  while (held < 1'000'000 && mine->add(&some->one)) ++held;
  EXPECT_GT(held, 10'000);
  EXPECT_LT(held, 1'000'000);
  EXPECT_EQ(ledger::sum(&some->one), held);
  for (; held > 0; --held) ASSERT_TRUE(mine->subtract(&some->one));
  while (held > -1'000'000 && mine->subtract(&some->one)) --held;
  EXPECT_EQ(ledger::sum(&some->one), held);
  for (; held < 0; ++held) ASSERT_TRUE(mine->add(&some->one));
  EXPECT_EQ(ledger::sum(&some->one), 0);
}

TEST(ledger, ledger_of_an_ended_thread_is_reused) {
  std::set<const ledger*> seen;
  for (int i = 0; i < 1000; ++i) std::thread([&] { seen.insert(ledger::of_this_thread()); }).join();
  EXPECT_EQ(seen.size(), 1U);
}

TEST(ledger, hints_belong_to_the_thread) {
  const auto some = std::make_unique<lone_record>();
  ledger::of_this_thread()->set_hint(7, &some->one);
  EXPECT_EQ(ledger::for_hints().hint(7), &some->one);
  EXPECT_EQ(ledger::for_hints().hint(8), nullptr);
  std::thread([] {
    EXPECT_EQ(ledger::for_hints().hint(7), nullptr) << "a thread before its first pin";
    EXPECT_EQ(ledger::if_there(), nullptr);
    ASSERT_NE(ledger::of_this_thread(), nullptr);
    EXPECT_EQ(ledger::for_hints().hint(7), nullptr);
  }).join();
  ledger::of_this_thread()->set_hint(7, nullptr);
}

// In a child of fork, for each thread that the parent has had: a look at a page that the thread had not touched is a
// fault. 8 ledgers have 2 048 pages of hints.
TEST(ledger, R37_all_hints_are_forgotten_without_a_look_at_what_was_not_touched) {
  constexpr std::ptrdiff_t threads = 8;
  constexpr std::array<std::uintptr_t, 5> keys{0, 1, 511, 65'536, 131'071};
  constexpr long most_faults = 500;
  const auto some = std::make_unique<lone_record>();
  std::barrier step(threads + 1);
  std::vector<std::jthread> all;
  for (std::ptrdiff_t i = 0; i < threads; ++i)
    all.emplace_back([&] {
      for (const auto key : keys) ledger::of_this_thread()->set_hint(key, &some->one);
      step.arrive_and_wait();
      step.arrive_and_wait();
      for (const auto key : keys) EXPECT_EQ(ledger::for_hints().hint(key), nullptr) << key;
    });
  const auto faults = [] {
    rusage used{};
    EXPECT_EQ(::getrusage(RUSAGE_SELF, &used), 0);
    return used.ru_minflt;
  };
  step.arrive_and_wait();
  const auto before = faults();
  core::forget_hints();
  EXPECT_LT(faults() - before, most_faults);
  step.arrive_and_wait();
}

TEST(ledger, for_each_lists_cells_and_slots) {
  const auto some = std::make_unique<lone_record>();
  auto* mine = ledger::of_this_thread();
  auto& cell = mine->cell_of(&some->one);
  ASSERT_EQ(cell.load(), 0U);
  cell.store(reinterpret_cast<std::uintptr_t>(&some->one));
  ASSERT_TRUE(mine->add(&some->one));
  ASSERT_TRUE(mine->add(&some->one));
  EXPECT_EQ(ledger::sum(&some->one), 3);
  std::map<const record*, std::int64_t> listed;
  ledger::for_each([&](const record* one, std::int64_t count) { listed[one] += count; });
  EXPECT_EQ(listed[&some->one], 3);
  cell.store(0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(mine->subtract(&some->one));
}

}  // namespace
}  // namespace pinfold::testing::ledger_test

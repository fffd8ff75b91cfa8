// SPDX-License-Identifier: BSD-3-Clause
// The four modes and their budgets: R11-R17.
#include "support/fixtures/cache_checks.hpp"

#include <thread>

namespace pinfold::testing::modes_test {
namespace {

using namespace std::chrono_literals;

std::vector<fake_handle> several(fake_world& world, std::uint64_t count, std::uint64_t size = 64) {
  std::vector<fake_handle> made;
  for (std::uint64_t i = 0; i < count; ++i) made.push_back(world.allocate(1, 0x100000 * (i + 1), size));
  return made;
}

TEST(modes, R11_last_release_closes_the_entry_only_without_retain) {
  for (const bool retain : {true, false}) {
    fake_fixture f({.retain = retain});
    const auto handle = f.world->allocate(1, 0x10000, 64);
    auto first = f.acquire(handle);
    auto second = f.acquire(handle);
    EXPECT_TRUE(first->release());
    EXPECT_EQ(f.world->open_count(), 1U);
    EXPECT_TRUE(second->release());
    EXPECT_EQ(f.world->open_count(), retain ? 1U : 0U);
    f.expect_sound();
  }
}

TEST(modes, R12_mode_1_closes_at_release_without_a_limit) {
  fake_fixture f({.retain = false});
  for (const auto& handle : several(*f.world, 100)) f.touch(handle);
  EXPECT_EQ(f.world->open_count(), 0U);
  EXPECT_EQ(f.cache.statistics().misses, 100U);
}

TEST(modes, R12_mode_2_closes_at_release_and_refuses_over_the_limit) {
  fake_fixture f({.retain = false, .max_count = 2});
  const auto handles = several(*f.world, 3);
  auto first = f.acquire(handles[0]);
  auto second = f.acquire(handles[1]);
  EXPECT_EQ(f.acquire(handles[2]).error().code, errc::over_budget) << "an error, not an abort";
  EXPECT_TRUE(second->release());
  EXPECT_TRUE(f.acquire(handles[2]));
  f.expect_sound();
}

TEST(modes, R12_mode_3_retains_without_a_limit) {
  fake_fixture f;
  const auto handles = several(*f.world, 200);
  for (int round = 0; round < 2; ++round)
    for (const auto& handle : handles) f.touch(handle);
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.opens, 200U);
  EXPECT_EQ(now.hits, 200U);
  EXPECT_EQ(now.evicted, 0U);
}

TEST(modes, R12_mode_4_retains_within_the_limit_at_all_times) {
  fake_fixture f({.max_bytes = 5 * 64, .max_count = 4});
  for (const auto& handle : several(*f.world, 20)) {
    f.touch(handle);
    EXPECT_LE(f.world->open_count(), 4U);
  }
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.peak_entries, 4U);
  EXPECT_EQ(now.evicted, 16U);
  f.expect_sound();
}

TEST(modes, R12_bytes_limit_counts_the_registered_bytes) {
  fake_fixture f({.max_bytes = 10 * 4096});
  f.world->extra_bytes = 4096;  // the driver registers twice the requested size
  for (const auto& handle : several(*f.world, 12, 4096)) f.touch(handle);
  const auto now = f.cache.statistics();
  EXPECT_EQ(f.world->open_count(), 5U);
  EXPECT_EQ(now.bytes_now, 10U * 4096);
  EXPECT_LE(now.peak_bytes, 10U * 4096);
}

TEST(modes, R12_registered_size_over_the_budget_is_refused_and_closed) {
  fake_fixture f({.max_bytes = 4 * 4096});
  f.world->extra_bytes = 4096;
  const auto handles = several(*f.world, 3, 4096);
  auto first = f.acquire(handles[0]);
  auto second = f.acquire(handles[1]);
  EXPECT_EQ(f.cache.statistics().bytes_now, 4U * 4096);
  EXPECT_EQ(f.acquire(handles[2]).error().code, errc::over_budget);
  EXPECT_EQ(f.world->open_count(), 2U);
  f.expect_sound();
}

TEST(modes, R13_two_uses_of_one_buffer_share_one_registration_in_mode_1) {
  fake_fixture f({.retain = false});
  const auto handle = f.world->allocate(1, 0x10000, 64);
  auto first = f.acquire(handle);
  auto second = f.acquire(handle);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(f.world->opens, 1U);
}

TEST(modes, R14_when_full_fail_refuses_with_over_budget) {
  fake_fixture f({.max_count = 1, .full = when_full::fail});
  const auto handles = several(*f.world, 2);
  auto lease = f.acquire(handles[0]);
  EXPECT_EQ(f.acquire(handles[1]).error().code, errc::over_budget);
  EXPECT_EQ(f.world->opens, 1U) << "the driver was not asked";
}

TEST(modes, R14_when_full_wait_waits_for_a_release_until_full_timeout) {
  fake_fixture f({.max_count = 1, .full = when_full::wait, .full_timeout = 60s});
  const auto handles = several(*f.world, 2);
  auto lease = f.acquire(handles[0]);
  std::thread later([&] {
    while (f.cache.statistics().requests_waiting == 0) std::this_thread::yield();
    std::this_thread::sleep_for(2ms);
    lease->release();
  });
  EXPECT_TRUE(f.acquire(handles[1]));
  later.join();
  EXPECT_GE(f.cache.statistics().waited, 1ms);

  fake_fixture g({.max_count = 1, .full = when_full::wait, .full_timeout = 20ms});
  const auto more = several(*g.world, 2);
  auto kept = g.acquire(more[0]);
  EXPECT_EQ(g.acquire(more[1]).error().code, errc::over_budget);
}

TEST(modes, R14_when_full_bypass_registers_outside_the_budget) {
  fake_fixture f({.max_count = 1, .full = when_full::bypass});
  const auto handles = several(*f.world, 2);
  auto counted = f.acquire(handles[0]);
  auto beside = f.acquire(handles[1]);
  ASSERT_TRUE(counted && beside);
  auto now = f.cache.statistics();
  EXPECT_EQ(now.bypasses, 1U);
  EXPECT_EQ(now.bypass_bytes, 64U);
  EXPECT_EQ(now.entries_now, 1U);
  auto shared = f.acquire(handles[1]);
  ASSERT_TRUE(shared) << "a driver that refuses a second open makes the users of a bypass share it";
  EXPECT_TRUE(beside->release());
  EXPECT_EQ(f.world->open_count(), 2U);
  EXPECT_TRUE(shared->release());
  EXPECT_EQ(f.world->open_count(), 1U) << "never kept, although the cache retains";
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 0U);
  f.expect_sound();
}

TEST(modes, R14_bypass_decided_after_the_open_counts_all_its_bytes) {
  fake_fixture f({.max_bytes = 3 * 4096, .full = when_full::bypass});
  f.world->extra_bytes = 4096;
  const auto handles = several(*f.world, 2, 4096);
  auto counted = f.acquire(handles[0]);
  auto beside = f.acquire(handles[1]);
  ASSERT_TRUE(beside);
  EXPECT_EQ(f.cache.statistics().bytes_now, 2U * 4096);
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 2U * 4096);
  EXPECT_TRUE(beside->release());
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 0U);
  f.expect_sound();
}

TEST(modes, R15_request_larger_than_the_whole_budget_evicts_nothing) {
  for (const auto full : {when_full::fail, when_full::wait, when_full::bypass}) {
    fake_fixture f({.max_bytes = 128, .full = full});
    const auto small = f.world->allocate(1, 0x10000, 64);
    f.touch(small);
    EXPECT_EQ(f.acquire(f.world->allocate(1, 0x20000, 256)).error().code, errc::larger_than_budget);
    EXPECT_TRUE(f.find(small));
    EXPECT_EQ(f.world->opens, 1U);
  }
}

TEST(modes, R16_entry_that_was_used_again_gets_a_second_chance) {
  fake_fixture f({.max_count = 3});
  const auto handles = several(*f.world, 4);
  for (std::size_t i = 0; i < 3; ++i) f.touch(handles[i]);
  f.touch(handles[0]);
  f.touch(handles[2]);
  f.touch(handles[3]);
  EXPECT_FALSE(f.find(handles[1])) << "opened, and never used again";
  EXPECT_TRUE(f.find(handles[0]));
  EXPECT_TRUE(f.find(handles[2])) << "the seed would have evicted this one";
}

TEST(modes, R16_oldest_entry_without_a_hit_is_evicted) {
  fake_fixture f({.max_count = 3});
  const auto handles = several(*f.world, 4);
  for (std::size_t i = 0; i < 4; ++i) f.touch(handles[i]);
  EXPECT_FALSE(f.find(handles[0]));
  EXPECT_TRUE(f.find(handles[1]));
}

TEST(modes, R17_idle_entries_stay_until_flush) {
  fake_fixture f;
  const auto handles = several(*f.world, 10);
  for (const auto& handle : handles) f.touch(handle);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.world->closes, 0U);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.world->open_count(), 0U);
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::modes_test

// SPDX-License-Identifier: BSD-3-Clause
// Refusals of the driver: already mapped (R6), out of resources (R7), anything else.
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <cstdint>
#include <optional>
#include <thread>

namespace pinfold::testing::conflict_test {
namespace {

using namespace std::chrono_literals;

TEST(conflict, R6_allocation_regrown_at_the_same_base_replaces_the_old_entry) {
  fake_fixture f;
  f.touch(f.world->allocate(1, 0x10000, 0x8000));
  f.touch(f.world->allocate(1, 0x10000, 0x10000));
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.conflicts, 1U);
  EXPECT_EQ(now.failed_opens, 1U);
  EXPECT_EQ(now.misses_extent, 1U);
  f.expect_sound();
}

TEST(conflict, R6_exactly_the_overlapping_entries_are_closed) {
  fake_fixture f;
  const auto before = f.world->allocate(1, 0x0f000, 0x1000);
  const auto inside = f.world->allocate(1, 0x12000, 0x1000);  // begins later than the new allocation
  const auto second = f.world->allocate(1, 0x14000, 0x1000);  // several old ones under one new
  const auto across = f.world->allocate(1, 0x17000, 0x2000);
  const auto after = f.world->allocate(1, 0x19000, 0x1000);
  const auto peer2 = f.world->allocate(2, 0x10000, 0x8000);
  for (const auto& handle : {before, inside, second, across, after, peer2}) f.touch(handle);
  f.touch(f.world->allocate(1, 0x10000, 0x8000));
  EXPECT_EQ(f.cache.statistics().conflicts, 3U);
  EXPECT_TRUE(f.find(before));
  EXPECT_TRUE(f.find(after));
  EXPECT_TRUE(f.find(peer2));
  f.expect_sound();
}

TEST(conflict, R6_leased_conflict_is_reported_and_nothing_is_closed) {
  fake_fixture f;
  const auto idle = f.world->allocate(1, 0x10000, 0x1000);
  const auto used = f.world->allocate(1, 0x12000, 0x1000);
  f.touch(idle);
  auto lease = f.acquire(used);
  const auto grown = f.world->allocate(1, 0x10000, 0x8000);
  auto refused = f.acquire(grown);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, 208);
  EXPECT_EQ(f.world->closes, 0U);
  EXPECT_TRUE(lease->release());
  f.touch(grown);
  f.expect_sound();
}

TEST(conflict, R6_acquire_waits_for_a_leased_conflict_until_the_deadline) {
  fake_fixture f({.conflict_timeout = 60s});
  auto lease = f.acquire(f.world->allocate(1, 0x10000, 0x1000));
  const auto grown = f.world->allocate(1, 0x10000, 0x2000);
  std::thread later([&] {
    std::this_thread::sleep_for(30ms);
    lease->release();
  });
  EXPECT_TRUE(f.acquire(grown));
  later.join();

  fake_fixture g({.conflict_timeout = 20ms});
  auto kept = g.acquire(g.world->allocate(1, 0x10000, 0x1000));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(g.acquire(g.world->allocate(1, 0x10000, 0x2000)).error().code, errc::in_use_conflict);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
}

TEST(conflict, R6_mapping_of_the_application_itself_evicts_nothing) {
  fake_fixture f;
  const auto innocent = f.world->allocate(1, 0x20000, 0x1000);
  f.touch(innocent);
  const auto handle = f.world->allocate(1, 0x10000, 0x1000);
  f.world->open_outside(handle);
  auto refused = f.acquire(handle);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, 208);
  EXPECT_TRUE(f.find(innocent));
  EXPECT_EQ(f.cache.statistics().evicted, 0U);
}

TEST(conflict, R6_overlapping_stale_idle_entries_are_closed_first) {
  fake_fixture f({.closes = close_policy::deferred});
  const auto old = f.world->allocate(1, 0x10000, 0x1000);
  f.touch(old);
  f.cache.invalidate({1}, old.allocation());
  f.touch(f.world->allocate(1, 0x10000, 0x2000));
  EXPECT_EQ(f.world->open_count(), 1U);
  f.expect_sound();
}

TEST(conflict, R6_close_of_a_quarantined_conflict_is_retried_before_a_refusal) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 0x1000);
  f.touch(old);
  f.world->inject([](driver_call call, const fake_handle&) -> std::optional<error> {
    if (call == driver_call::open) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "the close fails"};
  });
  EXPECT_FALSE(f.cache.flush());
  const auto grown = f.world->allocate(1, 0x10000, 0x2000);
  auto refused = f.acquire(grown);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, 5) << "why the close fails";
  f.world->heal();
  f.touch(grown);
  f.expect_sound();
}

TEST(conflict, R7_only_the_least_recently_used_entry_is_evicted) {
  fake_fixture f;
  f.world->capacity = 3;
  std::vector<fake_handle> handles;
  for (std::uint64_t i = 0; i < 3; ++i) handles.push_back(f.world->allocate(1, 0x10000 * (i + 1), 64));
  for (const auto& handle : handles) f.touch(handle);
  f.touch(handles[0]);  // now handles[1] is the least recently used
  f.touch(f.world->allocate(1, 0x90000, 64));
  EXPECT_EQ(f.cache.statistics().evicted, 1U);
  EXPECT_FALSE(f.find(handles[1]));
  EXPECT_TRUE(f.find(handles[0]));
  EXPECT_TRUE(f.find(handles[2]));
  f.expect_sound();
}

TEST(conflict, R7_open_that_never_fits_is_refused_although_other_threads_open_more_memory) {
  local_fixture f;
  constexpr std::uintptr_t huge = std::uintptr_t{1} << 46U;
  constexpr std::uintptr_t step = 0x10000;
  constexpr int most_asked = 1000;
  std::uintptr_t next = step;
  for (int i = 0; i < 8; ++i, next += step) f.touch(next, next + 0x1000);
  int asked = 0;
  f.device->fail_opens([&](const range& wanted, access_flags) -> std::optional<error> {
    if (wanted.begin != huge) return std::nullopt;
    return error{asked > most_asked ? errc::invalid_range : errc::out_of_resources};
  });
  const auto opener = std::this_thread::get_id();
  f.device->on_open = [&] {
    if (std::this_thread::get_id() != opener || ++asked > most_asked) return;
    std::thread([&] { f.touch(next, next + 0x1000); }).join();
    next += step;
  };
  EXPECT_EQ(f.acquire(huge, 2 * huge).error().code, errc::out_of_resources);
  EXPECT_LT(asked, 100);
  f.device->on_open = nullptr;
  f.expect_sound();
}

TEST(conflict, R7_out_of_resources_is_returned_when_no_entry_is_idle) {
  fake_fixture f;
  f.world->capacity = 2;
  auto kept = f.acquire(f.world->allocate(1, 0x10000, 64));
  f.touch(f.world->allocate(1, 0x20000, 64));
  auto second = f.acquire(f.world->allocate(1, 0x30000, 64));
  ASSERT_TRUE(second) << "the idle one made room";
  auto refused = f.acquire(f.world->allocate(1, 0x40000, 64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::out_of_resources);
  EXPECT_EQ(refused.error().native, 12);
  EXPECT_TRUE(kept->data() != nullptr && !kept->stale());
  f.expect_sound();
}

TEST(conflict, R7_acquire_waits_for_a_close_in_flight) {
  fake_fixture f({.retain = false});
  f.world->capacity = 1;
  f.world->close_takes = 50ms;
  auto lease = f.acquire(f.world->allocate(1, 0x10000, 64));
  const auto next = f.world->allocate(1, 0x20000, 64);
  std::thread releasing([&] { lease->release(); });
  while (f.world->closes == 0) std::this_thread::yield();
  EXPECT_TRUE(f.acquire(next)) << "the close in flight makes room";
  releasing.join();
}

TEST(conflict, R7_other_driver_errors_are_returned_unchanged_and_evict_nothing) {
  fake_fixture f;
  const auto innocent = f.world->allocate(1, 0x10000, 64);
  f.touch(innocent);
  f.world->inject([](driver_call, const fake_handle&) {
    return std::optional(error{errc::driver_error, native_kind::cuda, 719, "launch failure"});
  });
  auto refused = f.acquire(f.world->allocate(1, 0x20000, 64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::driver_error);
  EXPECT_EQ(refused.error().kind, native_kind::cuda);
  EXPECT_EQ(refused.error().native, 719);
  EXPECT_TRUE(f.find(innocent));
  EXPECT_EQ(f.world->closes, 0U);
  f.world->heal();
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::conflict_test

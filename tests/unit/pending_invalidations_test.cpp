// SPDX-License-Identifier: BSD-3-Clause
// What a cache does about memory that a monitor posts as gone: R31, R35, R36, R49.
#include "invalidation/event_log.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/monitors/announce.hpp>

#include <memory_resource>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::pending_invalidations_test {
namespace {

constexpr std::uintptr_t base = 0x7100'0000'0000;
constexpr std::uintptr_t size = 0x10000;

void announce(std::uintptr_t begin, std::uintptr_t end) { announce_gone(reinterpret_cast<void*>(begin), end - begin); }

std::uint64_t generation() { return invalidation::event_log::here().generation().load(); }

TEST(pending_invalidations, R30_announced_memory_is_registered_again) {
  local_fixture f;
  f.touch(base, base + size);
  f.touch(base, base + size);
  announce(base + 100, base + 101);
  EXPECT_FALSE(f.cached(base, base + size));
  f.touch(base, base + size);
  EXPECT_EQ(f.device->opened, 2U);
  EXPECT_EQ(f.cache.statistics().misses_invalidated, 1U);
  f.touch(base, base + size);
  EXPECT_EQ(f.device->opened, 2U) << "what came later is not affected";
  f.expect_sound();
}

TEST(pending_invalidations, event_invalidates_in_all_caches) {
  local_fixture a, b;
  a.touch(base, base + size);
  b.touch(base, base + size);
  announce(base, base + size);
  EXPECT_FALSE(a.cached(base, base + size));
  EXPECT_FALSE(b.cached(base, base + size));
}

TEST(pending_invalidations, R31_unregistered_memory_does_not_disturb_hits) {
  local_fixture f;
  f.touch(base, base + size);
  const auto before = generation();
  announce(base + 0x100000, base + 0x200000);
  announce(base - 0x100000, base);
  EXPECT_EQ(generation(), before);
  f.touch(base, base + size);
  EXPECT_EQ(f.device->opened, 1U);
}

TEST(pending_invalidations, closed_registration_causes_no_events) {
  {
    local_fixture f;
    f.touch(base, base + size);
  }
  const auto before = generation();
  announce(base, base + size);
  EXPECT_EQ(generation(), before);
}

TEST(pending_invalidations, R49_lease_on_invalidated_memory_turns_stale_and_the_sink_is_notified) {
  std::vector<event> heard;
  local_fixture f({.sink = [&](const event& one) { heard.push_back(one); }});
  auto held = f.acquire(base, base + size);
  auto other = f.acquire(base + 0x100000, base + 0x110000);
  announce(base, base + 1);
  EXPECT_FALSE(held->stale()) << "no thread has looked yet";
  f.touch(base + 0x100000, base + 0x110000);
  EXPECT_TRUE(held->stale());
  EXPECT_FALSE(other->stale());
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].kind, event_kind::invalidated_while_leased);
  EXPECT_EQ(heard[0].where, (range{base, base + size}));
  EXPECT_EQ(heard[0].leases, 1U);
  EXPECT_EQ(f.cache.statistics().invalidated_while_leased, 1U);
  EXPECT_TRUE(held->release());
  EXPECT_EQ(f.device->open_count(), 1U);
}

TEST(pending_invalidations, R36_progress_closes_invalidated_registrations) {
  local_fixture f;
  for (std::uintptr_t i = 0; i < 1000; ++i) f.touch(base + 2 * i * size, base + (2 * i + 1) * size);
  announce(base, base + 2000 * size);
  EXPECT_EQ(f.device->open_count(), 1000U);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

// One event for more entries than are marked at once: later requests deal with some of them.
struct big_event : ::testing::Test {
  static constexpr std::uintptr_t count = 1000;
  static constexpr std::uintptr_t elsewhere = base + 0x100'0000'0000;
  local_fixture<> f;
  static std::uintptr_t nth(std::uintptr_t i) { return base + 2 * i * size; }

  big_event() {
    for (std::uintptr_t i = 0; i < count; ++i) f.touch(nth(i), nth(i) + size);
    f.touch(elsewhere, elsewhere + size);
    announce(base, nth(count));
  }
};

TEST_F(big_event, request_for_other_memory_processes_only_a_part_of_the_event) {
  f.touch(elsewhere, elsewhere + size);
  EXPECT_EQ(f.device->opened, count + 1) << "a hit";
  std::size_t stale = 0;
  for (const auto& one : f.cache.dump()) stale += one.state == entry_state::draining ? 1 : 0;
  EXPECT_GT(stale, 0U);
  EXPECT_LT(stale, count / 2);
  for (std::uintptr_t i = 0; i < count; ++i) f.touch(elsewhere, elsewhere + size);
  stale = 0;
  for (const auto& one : f.cache.dump()) stale += one.state == entry_state::draining ? 1 : 0;
  EXPECT_EQ(stale, count);
  EXPECT_EQ(f.device->opened, count + 1);
}

TEST_F(big_event, invalidated_entries_are_never_found_in_any_order) {
  for (std::uintptr_t i = 0; i < count; ++i) {
    const auto one = nth(i * 37 % count);
    ASSERT_FALSE(f.cached(one, one + size)) << i;
  }
}

TEST_F(big_event, memory_registered_again_during_the_event_stays_cached) {
  for (std::uintptr_t i = count; i-- > 0;) f.touch(nth(i), nth(i) + size);
  EXPECT_EQ(f.device->opened, 2 * count + 1);
  for (std::uintptr_t i = 0; i < count; ++i) f.touch(nth(i), nth(i) + size);
  EXPECT_EQ(f.device->opened, 2 * count + 1);
  f.expect_sound();
}

TEST_F(big_event, second_event_during_the_first_invalidates) {
  f.touch(nth(900), nth(900) + size);
  announce(nth(900), nth(900) + size);
  EXPECT_FALSE(f.cached(nth(900), nth(900) + size));
  f.touch(nth(900), nth(900) + size);
  EXPECT_TRUE(f.cached(nth(900), nth(900) + size));
}

TEST_F(big_event, many_pending_events_are_merged) {
  for (std::uintptr_t i = 0; i < 100; ++i) {
    f.touch(nth(999) + 3 * i, nth(999) + size);  // new entries, which the next events cover
    announce(base, nth(count));
  }
  f.touch(elsewhere, elsewhere + size);
  EXPECT_EQ(f.device->opened, count + 101);
  for (std::uintptr_t i = 0; i < count; ++i) ASSERT_FALSE(f.cached(nth(i), nth(i) + size));
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 1U);
}

TEST(pending_invalidations, R35_overflow_of_the_event_log_invalidates_all_memory) {
  local_fixture f;
  f.touch(base, base + size);
  f.touch(base + 0x100'0000'0000, base + 0x100'0000'1000);
  for (std::size_t i = 0; i <= invalidation::event_log::capacity; ++i) announce(base, base + size);
  EXPECT_FALSE(f.cached(base + 0x100'0000'0000, base + 0x100'0000'1000));
  f.touch(base + 0x100'0000'0000, base + 0x100'0000'1000);
  EXPECT_TRUE(f.cached(base + 0x100'0000'0000, base + 0x100'0000'1000));
}

TEST(pending_invalidations, no_entry_is_found_while_an_event_number_is_unpublished) {
  local_fixture f;
  f.touch(base, base + size);
  auto& event_log = invalidation::event_log::here();
  const auto reserved = event_log.reserve();
  EXPECT_FALSE(f.cached(base, base + size));
  f.touch(base, base + size);
  EXPECT_FALSE(f.cached(base, base + size)) << "it may be about that as well";
  event_log.publish(reserved, {});
  f.touch(base, base + size);
  EXPECT_TRUE(f.cached(base, base + size));
  f.expect_sound();
}

// The device calls back in the middle of an open.
TEST(pending_invalidations, R6_memory_invalidated_during_its_open_is_opened_again) {
  local_fixture f;
  int left = 1;
  f.device->fail_opens([&](const range& memory, access_flags) -> std::optional<error> {
    if (left-- > 0) announce(memory.begin, memory.end);
    return std::nullopt;
  });
  auto lease = f.acquire(base, base + size);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(lease->stale());
  EXPECT_EQ(f.device->opened, 2U);
  EXPECT_EQ(f.device->open_count(), 1U);
  EXPECT_TRUE(f.cached(base, base + size));
  f.expect_sound();
}

TEST(pending_invalidations, memory_invalidated_during_every_open_is_leased_but_not_kept) {
  local_fixture f;
  f.device->fail_opens([&](const range& memory, access_flags) -> std::optional<error> {
    announce(memory.begin, memory.end);
    return std::nullopt;
  });
  auto lease = f.acquire(base, base + size);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->stale());
  EXPECT_FALSE(f.cached(base, base + size));
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

// Memory in whole pages, which is given back to the kernel at once.
struct mapping_resource final : std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  void do_deallocate(void* address, std::size_t bytes, std::size_t) override { ::munmap(address, bytes); }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(pending_invalidations, R31_memory_reused_by_an_announcing_resource_stays_registered) {
  local_fixture f;
  mapping_resource pages;
  announcing_resource system(&pages);
  std::pmr::unsynchronized_pool_resource pool(&system);
  void* block = pool.allocate(1024);
  const auto where = reinterpret_cast<std::uintptr_t>(block);
  f.touch(where, where + 1024);
  for (int i = 0; i < 100; ++i) {
    pool.deallocate(block, 1024);
    ASSERT_EQ(block, pool.allocate(1024));
    f.touch(where, where + 1024);
  }
  EXPECT_EQ(f.device->opened, 1U) << "the memory never went";
  pool.deallocate(block, 1024);
  pool.release();
  EXPECT_FALSE(f.cached(where, where + 1024));
}

}  // namespace
}  // namespace pinfold::testing::pending_invalidations_test

// SPDX-License-Identifier: BSD-3-Clause
// Hits without the mutex, and all their outcomes: R5, R36, R37, R42, R43, R46.
#include "support/fixtures/local_fixture.hpp"
#include "support/processes/child_process.hpp"

#include <latch>
#include <thread>
#include <vector>

namespace pinfold::testing::hit_test {
namespace {

using namespace std::chrono_literals;
using local = local_fixture<>;

TEST(hit, R43_hits_are_counted_on_every_thread) {
  local f;
  f.touch(4096, 8192);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) ASSERT_TRUE(f.acquire(4096 + 8 * static_cast<std::uintptr_t>(n % 64), 8192));
    });
  for (auto& one : threads) one.join();
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.hits, 4000U);
  EXPECT_EQ(now.misses, 1U);
  EXPECT_EQ(now.leases_now, 0U);
  f.expect_sound();
}

TEST(hit, R45_hits_of_an_entry_are_sampled) {
  local f;
  for (int n = 0; n < 51200; ++n) f.touch(4096, 8192);
  const auto listed = f.cache.dump();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_GE(listed[0].hits, 50000U);
  EXPECT_LE(listed[0].hits, 52000U);
}

TEST(hit, R45_hits_of_an_entry_are_exact_with_entry_statistics) {
  local f({.entry_statistics = true});
  for (int n = 0; n < 100; ++n) f.touch(4096, 8192);
  ASSERT_EQ(f.cache.dump().size(), 1U);
  EXPECT_EQ(f.cache.dump()[0].hits, 99U);
}

TEST(hit, leases_may_be_released_on_another_thread) {
  local f;
  using lease = decltype(f.cache)::lease;
  for (const std::uintptr_t regions : {1U, 100U}) {
    std::vector<lease> out;
    for (std::uintptr_t i = 0; i < 64'000; ++i) {
      const auto begin = 0x10000 * (1 + i % regions);
      auto got = f.acquire(begin, begin + 4096);
      ASSERT_TRUE(got);
      out.push_back(std::move(*got));
    }
    EXPECT_EQ(f.cache.statistics().leases_now, out.size());
    EXPECT_TRUE(f.cache.flush());
    EXPECT_EQ(f.device->open_count(), regions) << "all are leased";
    std::thread([&] { out.clear(); }).join();
    EXPECT_EQ(f.cache.statistics().leases_now, 0U);
    EXPECT_TRUE(f.cache.flush());
    EXPECT_EQ(f.device->open_count(), 0U);
  }
}

TEST(hit, threads_may_end_with_leases_out) {
  local f;
  using lease = decltype(f.cache)::lease;
  f.touch(4096, 8192);
  std::vector<lease> out(1000);
  for (auto& one : out)
    std::thread([&] {
      auto got = f.acquire(4096, 8192);
      if (got) one = std::move(*got);
    }).join();
  EXPECT_EQ(f.cache.statistics().leases_now, out.size());
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 1U);
  out.clear();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(hit, R5_invalidated_entry_is_closed_by_its_last_release_on_any_thread) {
  local f;
  f.touch(4096, 8192);
  auto here = f.acquire(4096, 8192);
  auto more = f.acquire(4096, 8192);
  f.invalidate(4096, 4097);
  EXPECT_TRUE(here->stale());
  EXPECT_FALSE(f.cached(4096, 8192));
  EXPECT_EQ(f.cache.statistics().invalidated_while_leased, 1U);
  std::thread([&] { EXPECT_TRUE(here->release()); }).join();
  EXPECT_EQ(f.device->open_count(), 1U);
  EXPECT_TRUE(more->release());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(hit, caches_over_the_same_memory_return_their_own_registrations) {
  std::vector<std::unique_ptr<local>> caches;
  for (int i = 0; i < 300; ++i) caches.push_back(std::make_unique<local>());  // more than have own counters
  for (int round = 0; round < 3; ++round)
    for (auto& one : caches) {
      auto got = one->acquire(4096, 8192);
      ASSERT_TRUE(got);
      EXPECT_EQ(one->device->now().count(got->registration().key), 1U);
      EXPECT_EQ(got->registration().key, 1U);
    }
  for (auto& one : caches) {
    EXPECT_EQ(one->cache.statistics().hits, 2U);
    EXPECT_EQ(one->device->open_count(), 1U);
  }
}

TEST(hit, R42_lease_that_outlives_its_cache_stays_closed_while_caches_are_made) {
  auto first = std::make_unique<local>(cache_options{.drain_timeout = 1ms});
  first->touch(4096, 8192);
  auto left = first->acquire(4096, 8192);
  ASSERT_TRUE(left);
  first.reset();
  EXPECT_TRUE(left->closed());
  for (int i = 0; i < 20; ++i) {
    local next;
    next.touch(4096, 8192);
    next.touch(4096, 8192);
    EXPECT_TRUE(left->closed());
    EXPECT_EQ(next.cache.statistics().leases_now, 0U);
    EXPECT_TRUE(next.cache.flush());
    EXPECT_EQ(next.device->open_count(), 0U);
  }
  EXPECT_TRUE(left->release());
}

// A lease that was pinned in one thread's slot, and given back on a thread whose slot was taken, is balanced in the
// entry's counter. The next cache may get that entry's memory.
TEST(hit, R42_pins_released_on_another_thread_do_not_affect_later_caches) {
  constexpr std::uintptr_t regions = 3000;  // more than a ledger has slots
  for (int round = 0; round < 3; ++round) {
    local f;
    using leases = std::vector<decltype(f.cache)::lease>;
    for (std::uintptr_t i = 0; i < regions; ++i) f.touch(4096 * (1 + i), 4096 * (2 + i));
    const auto take = [&](leases& into, std::uintptr_t i) {
      for (int n = 0; n < 3; ++n) into.push_back(*f.acquire(4096 * (1 + i), 4096 * (2 + i)));  // a cell holds one
    };
    leases out;
    for (std::uintptr_t i = 0; i < regions; ++i) take(out, i);
    std::thread([&] {
      leases own;
      for (std::uintptr_t i = regions; i-- > 0;) take(own, i);  // the slots of this thread are taken by other entries
      out.clear();
    }).join();
    EXPECT_EQ(f.cache.statistics().leases_now, 0U);
    EXPECT_TRUE(f.cache.flush());
    EXPECT_EQ(f.device->open_count(), 0U) << "round " << round;
  }
}

TEST(hit, R42_release_can_race_with_the_end_of_the_cache) {
  for (int round = 0; round < 300; ++round) {
    auto f = std::make_unique<local>(cache_options{.drain_timeout = 60s});
    f->touch(4096, 8192);
    auto lease = f->acquire(4096, 8192);
    std::latch both(2);
    std::thread other([&] {
      both.arrive_and_wait();
      lease->release();
    });
    both.arrive_and_wait();
    f.reset();
    other.join();
    EXPECT_FALSE(*lease);
  }
}

TEST(hit, R14_release_of_another_entry_wakes_a_thread_that_waits_for_room) {
  local f({.max_count = 1, .full = when_full::wait, .full_timeout = 120s});
  f.touch(4096, 8192);
  auto held = f.acquire(4096, 8192);
  std::thread other([&] { EXPECT_TRUE(f.acquire(0x10000, 0x11000)); });
  std::this_thread::sleep_for(50ms);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(held->release());
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
}

TEST(hit, R37_a_forked_child_neither_uses_nor_ends_its_parents_registrations) {
  local f;
  f.touch(4096, 8192);
  auto lease = f.acquire(4096, 8192);
  ASSERT_TRUE(lease);
  child_process child([&](line&) {
    if (f.acquire(4096, 8192) || f.cached(4096, 8192) || f.cache.flush()) return 1;
    if (f.acquire(4096, 8192).error().code != errc::closed) return 2;
    if (!lease->release()) return 3;
    if (f.device->open_count() != 1) return 4;
    {
      local own;  // the child may have caches of its own
      own.touch(4096, 8192);
      own.touch(4096, 8192);
      if (own.cache.statistics().hits != 1 || f.acquire(4096, 8192)) return 5;
    }
    auto moved = std::make_unique<decltype(f.cache)>(std::move(f.cache));
    moved.reset();
    return f.device->open_count() == 1 ? 0 : 6;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(f.acquire(4096, 8192));
  EXPECT_TRUE(lease->release());
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::hit_test

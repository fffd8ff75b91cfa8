// SPDX-License-Identifier: BSD-3-Clause
// Misses that evict pass over a lease once, however long it lasts; its release brings its registration back.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/registrars/null.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::leases_set_aside_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t size = 0x1000;
constexpr std::uintptr_t nth(std::size_t number) { return 0x10000 + number * 0x10000; }

using lease = decltype(local_fixture<>::cache)::lease;

lease take(local_fixture<>& f, std::size_t number) {
  auto got = f.acquire(nth(number), nth(number) + size);
  EXPECT_TRUE(got) << describe(got.error());
  return got ? std::move(*got) : lease{};
}

TEST(leases_set_aside, R58_released_registration_is_evicted_again) {
  local_fixture f({.max_count = 3});
  auto first = take(f, 1);
  auto second = take(f, 2);
  for (std::size_t number = 3; number < 10; ++number) static_cast<void>(take(f, number));  // passes the leases
  static_cast<void>(first.release());
  auto third = take(f, 10);
  auto fourth = take(f, 11);
  EXPECT_EQ(f.device->open_count(), 3U);
  EXPECT_FALSE(f.cached(nth(1), nth(1) + size)) << "the released registration made room";
  auto refused = f.acquire(nth(12), nth(12) + size);
  ASSERT_FALSE(refused) << "all is leased";
  EXPECT_EQ(refused.error().code, errc::over_budget);
  static_cast<void>(second.release());
  EXPECT_TRUE(f.acquire(nth(12), nth(12) + size));
}

TEST(leases_set_aside, one_of_two_releases_brings_a_registration_back_into_the_ring) {
  local_fixture f({.max_count = 2});
  auto one = take(f, 1);
  auto other = take(f, 1);
  static_cast<void>(take(f, 2));
  static_cast<void>(take(f, 3));
  static_cast<void>(one.release());
  static_cast<void>(take(f, 4));  // sets it aside again
  EXPECT_TRUE(f.cached(nth(1), nth(1) + size));
  static_cast<void>(other.release());
  auto kept = take(f, 5);
  auto room = take(f, 6);
  EXPECT_FALSE(f.cached(nth(1), nth(1) + size));
}

TEST(leases_set_aside, what_is_set_aside_is_hit) {
  local_fixture f({.max_count = 2});
  auto held = take(f, 1);
  static_cast<void>(take(f, 2));
  static_cast<void>(take(f, 3));
  const auto before = f.cache.statistics();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(f.acquire(nth(1), nth(1) + size));
  const auto after = f.cache.statistics();
  EXPECT_EQ(after.hits - before.hits, 100U);
  EXPECT_EQ(after.misses, before.misses);
}

TEST(leases_set_aside, R14_release_of_what_is_set_aside_ends_a_wait_for_room) {
  local_fixture f({.max_count = 2, .full = when_full::wait, .full_timeout = 60s});
  std::atomic<bool> over{false};
  std::atomic<int> held{0};
  std::thread owner([&] {
    auto first = take(f, 1);
    auto second = take(f, 2);
    held = 1;
    while (!over) std::this_thread::yield();
    static_cast<void>(first.release());
  });
  while (held == 0) std::this_thread::yield();
  std::thread waiting([&] { static_cast<void>(take(f, 3)); });
  while (f.cache.statistics().requests_waiting == 0) std::this_thread::yield();
  over = true;
  waiting.join();
  owner.join();
}

/// Returns the time of the fastest few misses that evict beside so many leases.
std::chrono::nanoseconds miss_beside(std::size_t leases) {
  pinfold::cache cache(null_registrar(), keeping({.max_count = leases + 8}));
  std::vector<decltype(cache)::lease> held;
  const auto acquire = [&](std::size_t number) { return cache.acquire(reinterpret_cast<void*>(nth(number)), size); };
  for (std::size_t i = 0; i < leases; ++i) held.push_back(std::move(*acquire(i)));
  auto best = std::chrono::nanoseconds::max();
  auto next = leases;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(acquire(next++));
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(acquire(next++));
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
  }
  return best;
}

TEST(leases_set_aside, miss_does_not_take_longer_with_more_leases) {
  const auto few = miss_beside(100);
  const auto many = miss_beside(10'000);
  EXPECT_LT(many, 10 * few) << few.count() << " ns, " << many.count() << " ns";  // 100 times where all are passed
}

}  // namespace
}  // namespace pinfold::testing::leases_set_aside_test

// SPDX-License-Identifier: BSD-3-Clause
// Requests and the budget: R14, R15, R27.
#include "support/fixtures/local_fixture.hpp"

#include "core/sync_point.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

namespace pinfold::testing::budget_test {
namespace {

using namespace std::chrono_literals;

TEST(budget, R12_a_limit_of_zero_admits_nothing) {
  for (const auto& none : {cache_options{.max_bytes = 0}, cache_options{.max_count = 0}}) {
    local_fixture f(none);
    EXPECT_EQ(f.acquire(0x1000, 0x2000).error().code, errc::larger_than_budget);
    EXPECT_TRUE(f.acquire(0x1000, 0x2000, local_access, {.bypass = true}));
    f.expect_sound();
  }
}

TEST(budget, R27_a_bypass_request_may_be_larger_than_the_whole_budget) {
  for (const auto full : {when_full::fail, when_full::wait, when_full::bypass}) {
    local_fixture f({.max_bytes = 0x1000, .full = full});
    f.touch(0x1000, 0x2000);
    auto beside = f.acquire(0x10000, 0x20000, local_access, {.bypass = true});
    ASSERT_TRUE(beside) << describe(beside.error());
    EXPECT_EQ(f.cache.statistics().bypass_bytes, 0x10000U);
    EXPECT_EQ(f.cache.statistics().bytes_now, 0x1000U);
    EXPECT_TRUE(f.cached(0x1000, 0x2000)) << "nothing is evicted for it";
    EXPECT_TRUE(beside->release());
    EXPECT_EQ(f.cache.statistics().bypass_bytes, 0U);
    EXPECT_EQ(f.device->open_count(), 1U);
    f.expect_sound();
  }
}

// Each lease is passed once, and no hit is stopped.
TEST(budget, R14_requests_that_bypass_a_full_budget_pass_each_lease_once) {
  static constexpr std::uintptr_t leases = 100;
  static constexpr std::uintptr_t requests = 1000;
  static std::atomic<std::size_t> steps;  // at each lease that is set aside, and at each barrier
  local_fixture f({.max_count = leases, .full = when_full::bypass});
  std::vector<std::decay_t<decltype(*f.acquire(0, 1))>> held;
  for (std::uintptr_t i = 1; i <= leases; ++i) held.push_back(*f.acquire(i * 0x10000, i * 0x10000 + 0x1000));
  std::atomic<bool> hit{false};
  std::jthread other([&](const std::stop_token& stop) {
    EXPECT_TRUE(f.acquire(0x10000, 0x11000));
    hit = true;
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
  });
  while (!hit) std::this_thread::yield();
  steps = 0;
  core::at_point = +[]() noexcept { ++steps; };
  for (std::uintptr_t i = 1; i <= requests; ++i)
    EXPECT_TRUE(f.acquire((leases + i) * 0x10000, (leases + i) * 0x10000 + 1));
  core::at_point = nullptr;
  EXPECT_EQ(f.cache.statistics().bypasses, requests);
  EXPECT_GE(steps, leases);
  EXPECT_LT(steps, 3 * leases);
}

TEST(budget, R27_persistent_request_is_refused_when_only_a_bypass_is_possible) {
  local_fixture f({.max_count = 1, .full = when_full::bypass});
  auto held = f.acquire(0x1000, 0x2000);
  const auto refused = f.acquire(0x10000, 0x11000, local_access, {.persistent = true});
  ASSERT_FALSE(refused) << "a lease would look persistent, and its registration end with it";
  EXPECT_EQ(refused.error().code, errc::over_budget);
  EXPECT_EQ(f.cache.statistics().bypasses, 0U);
  EXPECT_TRUE(held->release());
  EXPECT_TRUE(f.acquire(0x10000, 0x11000, local_access, {.persistent = true})) << "the idle one makes room";
  EXPECT_TRUE(f.cache.flush());
  EXPECT_TRUE(f.cached(0x10000, 0x11000));
  f.expect_sound();
}

TEST(budget, R27_a_persistent_request_does_not_share_a_bypass) {
  local_fixture f({.max_count = 1, .full = when_full::bypass});
  auto held = f.acquire(0x1000, 0x2000);
  auto beside = f.acquire(0x10000, 0x11000);
  ASSERT_EQ(f.cache.statistics().bypasses, 1U);
  EXPECT_EQ(f.acquire(0x10000, 0x11000, local_access, {.persistent = true}).error().code, errc::over_budget);
  EXPECT_TRUE(held->release());
  auto kept = f.acquire(0x10000, 0x11000, local_access, {.persistent = true});
  ASSERT_TRUE(kept) << describe(kept.error());
  EXPECT_NE(kept->registration().key, beside->registration().key);
  EXPECT_TRUE(kept->release());
  EXPECT_TRUE(beside->release());
  EXPECT_TRUE(f.cached(0x10000, 0x11000));
  f.expect_sound();
}

// The opener finds out that there is no room while the other thread waits for it. The entry that the opener wants to
// close cannot be closed.
TEST(budget, R27_a_persistent_request_that_waits_for_an_open_does_not_share_its_bypass) {
  std::atomic<bool> leave{false};
  local_fixture f({.max_count = 1, .full = when_full::bypass, .sink = [&](const event& what) {
                     while (what.kind == event_kind::evicted && !leave) std::this_thread::sleep_for(1ms);
                   }});
  f.touch(0x1000, 0x2000);
  f.device->fail_closes(100);
  std::thread opener([&] { EXPECT_TRUE(f.acquire(0x10000, 0x11000)); });
  std::thread waiter([&] {
    const auto opening = [](const entry_info& one) { return one.state == entry_state::opening; };
    const auto is_opening = [&] { return std::ranges::any_of(f.cache.dump(), opening); };
    while (!is_opening()) std::this_thread::sleep_for(1ms);
    const auto got = f.acquire(0x10000, 0x11000, local_access, {.persistent = true});
    EXPECT_TRUE(!got && got.error().code == errc::over_budget);
  });
  const auto joined = [](const entry_info& one) { return one.state == entry_state::opening && one.leases == 2; };
  while (!std::ranges::any_of(f.cache.dump(), joined)) std::this_thread::sleep_for(1ms);
  leave = true;
  opener.join();
  waiter.join();
  f.device->fail_closes(0);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 0U);
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::budget_test

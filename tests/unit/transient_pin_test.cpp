// SPDX-License-Identifier: BSD-3-Clause
// A hit that fails holds a pin for some instructions, during which its thread may lose the processor. Such a pin is no
// lease: no request is refused because of it, and no entry is skipped (R58).
#include "support/fixtures/stopped_hit.hpp"

#include "core/deadlines.hpp"
#include "core/sync_point.hpp"
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/detail/ledger.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace pinfold::testing::transient_pin_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t first = 0x10000;
constexpr std::uintptr_t second = 0x20000;
constexpr std::uintptr_t size = 0x1000;

/// On a busy machine the other thread may take longer than the library would wait.
class transient_pin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (detail::ledger::of_this_thread() == nullptr) GTEST_SKIP() << "hints need membarrier";
    core::longest_transient_pin = 10s;
  }
  void TearDown() override {
    core::longest_transient_pin = usual_;
    core::at_point = nullptr;
  }

  /// Calls `what` at the first point on the closing side that the calling thread reaches.
  static void at_first_point(std::function<void()> what) {
    at_point_ = std::move(what);
    core::at_point = +[]() noexcept {
      if (auto call = std::exchange(at_point_, nullptr)) call();
    };
  }

 private:
  const std::chrono::microseconds usual_ = core::longest_transient_pin;
  inline static thread_local std::function<void()> at_point_;
};

bool a_release_is_awaited() { return detail::releases_awaited > 0; }

/// Another thread that stays inside a hit of the first region until the engine waits for it.
struct hit_in_between {
  explicit hit_in_between(local_fixture<>& f)
      : thread(
            "after_pin", [&f] { f.touch(first, first + size), f.touch(first, first + size); },
            [&f] { static_cast<void>(f.acquire(first, first + size)); }) {
    const auto give_up = std::chrono::steady_clock::now() + 2s;  // in case the engine never waits
    thread.go_when([give_up] { return a_release_is_awaited() || std::chrono::steady_clock::now() > give_up; });
  }
  stopped_hit thread;
};

TEST_F(transient_pin, R58_transient_pin_does_not_use_up_the_budget) {
  local_fixture f({.max_count = 1});
  const hit_in_between other(f);
  auto got = f.acquire(second, second + size);
  EXPECT_TRUE(got) << describe(got.error());
}

TEST_F(transient_pin, R58_transient_pin_does_not_use_up_the_drivers_resources) {
  local_fixture f;
  f.device->capacity = 1;
  const hit_in_between other(f);
  auto got = f.acquire(second, second + size);
  EXPECT_TRUE(got) << describe(got.error());
}

TEST_F(transient_pin, R58_lease_on_one_victim_does_not_protect_another) {
  local_fixture f({.max_count = 2});
  f.touch(first, first + size);
  f.touch(second, second + size);
  f.touch(first, first + size);  // a hint from here on
  decltype(f.cache)::lease taken;
  at_first_point([&] { taken = std::move(*f.acquire(first, first + size)); });
  auto got = f.acquire(0x30000, 0x31000);
  EXPECT_TRUE(taken);
  EXPECT_TRUE(got) << describe(got.error());
}

TEST_F(transient_pin, R6_transient_pin_is_no_conflict) {
  fake_fixture f;
  const auto old = f.world->allocate(1, first, size);
  stopped_hit other("after_pin", [&] { f.touch(old), f.touch(old); }, [&] { static_cast<void>(f.find(old)); });
  const auto grown = f.world->allocate(1, first, 2 * size);
  const auto give_up = std::chrono::steady_clock::now() + 2s;
  other.go_when([give_up] { return a_release_is_awaited() || std::chrono::steady_clock::now() > give_up; });
  auto got = f.acquire(grown);
  EXPECT_TRUE(got) << describe(got.error());
}

TEST_F(transient_pin, transient_pin_is_no_lease_for_quiesce) {
  local_fixture f;
  std::atomic<bool> counting{false};
  stopped_hit other(
      "after_pin", [&] { f.touch(first, first + size), f.touch(first, first + size); },
      [&] { static_cast<void>(f.cached(first, first + size)); });
  const auto give_up = std::chrono::steady_clock::now() + 2s;
  other.go_when([&, give_up] { return counting || std::chrono::steady_clock::now() > give_up; });
  at_first_point([&] { counting = true; });
  const auto done = f.cache.quiesce();
  EXPECT_TRUE(done) << describe(done.error());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(transient_pin, transient_pin_does_not_keep_an_entry_from_flush) {
  local_fixture f;
  const hit_in_between other(f);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(transient_pin, R41_transient_pin_does_not_keep_an_entry_in_quarantine) {
  local_fixture f;
  stopped_hit other(
      "before_pin", [&] { f.touch(first, first + size), f.touch(first, first + size); },
      [&] { static_cast<void>(f.cached(first, first + size)); });
  f.invalidate(first, first + size);
  f.device->fail_closes(2);  // the close, and its immediate retry
  EXPECT_FALSE(f.cache.progress());
  EXPECT_EQ(f.cache.statistics().quarantined, 1U);
  other.go_to("after_pin");
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.cache.statistics().quarantined, 0U);
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(transient_pin, R42_quiesce_refuses_when_a_hit_takes_a_lease_meanwhile) {
  local_fixture f;
  f.touch(first, first + size);
  f.touch(first, first + size);
  decltype(f.cache)::lease taken;
  at_first_point([&] { taken = std::move(*f.acquire(first, first + size)); });
  const auto done = f.cache.quiesce();
  ASSERT_TRUE(taken);
  EXPECT_FALSE(done) << "a lease is out";
  EXPECT_EQ(f.device->open_count(), 1U);
  static_cast<void>(taken.release());
  const auto hits = f.cache.statistics().hits;
  f.touch(first, first + size);
  EXPECT_EQ(f.cache.statistics().hits, hits + 1) << "hits go on after quiesce has refused";
  EXPECT_TRUE(f.cache.quiesce());
}

}  // namespace
}  // namespace pinfold::testing::transient_pin_test

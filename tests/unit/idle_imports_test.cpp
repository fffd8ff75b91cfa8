// SPDX-License-Identifier: BSD-3-Clause
// Imports that no request used for `idle_timeout` are closed: nothing tells that their exporter freed them.
#include "support/fixtures/cache_checks.hpp"

#include <chrono>
#include <thread>

namespace pinfold::testing::idle_imports_test {
namespace {

using namespace std::chrono_literals;

constexpr auto timeout = 60ms;  // four ticks of the coarse clock, each up to 4 ms long
constexpr std::uint64_t count = 500;

struct idle_imports : ::testing::Test {
  static fake_handle make(fake_world& world, std::uint64_t i) { return world.allocate(1, 0x10000 * (i + 1), 64); }

  /// Returns whether `done` becomes true within a minute. Calls nothing else.
  template <class Done>
  static bool comes(Done&& done) {
    const auto start = std::chrono::steady_clock::now();
    while (!done() && std::chrono::steady_clock::now() - start < 60s) std::this_thread::sleep_for(1ms);
    return done();
  }
};

TEST_F(idle_imports, R60_idle_imports_are_closed_by_the_reaper_without_another_call) {
  for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
    fake_fixture f({.closes = closes, .reaper = true, .idle_timeout = timeout});
    for (std::uint64_t i = 0; i < count; ++i) f.touch(make(*f.world, i));
    EXPECT_TRUE(comes([&] { return f.world->open_count() == 0; })) << f.world->open_count() << " are open";
    EXPECT_EQ(f.cache.statistics().expired, count);
    EXPECT_TRUE(f.cache.flush());  // the reaper counts its last close after the driver has done it
    f.expect_sound();
  }
}

TEST_F(idle_imports, idle_imports_are_closed_by_misses_and_by_progress) {
  for (const bool by_misses : {false, true}) {
    fake_fixture f({.idle_timeout = timeout});
    for (std::uint64_t i = 0; i < count; ++i) f.touch(make(*f.world, i));
    EXPECT_EQ(f.cache.statistics().opens, count) << "on a loaded machine some are closed by now";
    const bool gone = comes([&] {
      if (by_misses) f.touch(make(*f.world, count));
      if (by_misses) f.cache.invalidate({1}, {0x10000 * (count + 1), 0x10000 * (count + 1) + 1});
      if (!by_misses) f.cache.progress();
      return f.cache.statistics().expired >= count && f.world->open_count() <= 1;
    });
    EXPECT_TRUE(gone) << f.world->open_count() << " are open";
    f.expect_sound();
  }
}

TEST_F(idle_imports, imports_stay_open_while_they_are_hit_or_leased) {
  // Returns false if this thread was kept from hitting for so long that the import may have been idle.
  const auto stays_open = [] {
    fake_fixture f({.idle_timeout = timeout});
    const auto hit = make(*f.world, 0), leased = make(*f.world, 1), idle = make(*f.world, 2);
    f.touch(idle);
    auto lease = f.acquire(leased);
    EXPECT_TRUE(lease);
    const auto start = std::chrono::steady_clock::now();
    for (auto last = start; last - start < 6 * timeout;) {
      f.touch(hit);
      f.cache.progress();
      std::this_thread::sleep_for(1ms);
      const auto now = std::chrono::steady_clock::now();
      if (now - last > timeout / 2) return false;
      last = now;
    }
    EXPECT_TRUE(f.find(hit));
    EXPECT_TRUE(f.find(leased));
    EXPECT_FALSE(f.find(idle));
    EXPECT_EQ(f.cache.statistics().expired, 1U);
    EXPECT_EQ(f.cache.statistics().misses, 3U);
    f.touch(idle);
    EXPECT_EQ(f.cache.statistics().misses_evicted, 1U);
    return true;
  };
  constexpr int tries = 50;
  bool done = false;
  for (int i = 0; i < tries && !done; ++i) done = stays_open();
  EXPECT_TRUE(done) << "this machine is too busy";
}

TEST_F(idle_imports, imports_stay_open_without_an_idle_timeout) {
  fake_fixture f({.reaper = true, .idle_timeout = 0ms});
  f.touch(make(*f.world, 0));
  for (int i = 0; i < 100; ++i) {
    f.cache.progress();
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(f.world->open_count(), 1U);
}

TEST_F(idle_imports, sweep_of_idle_imports_keeps_the_hit_marks_of_the_eviction) {
  // Returns false if the next sweep may have come before the eviction: then both were idle.
  const auto keeps_marks = [] {
    fake_fixture f({.max_count = 2, .idle_timeout = timeout});
    const auto hot = make(*f.world, 0), cold = make(*f.world, 1);
    f.touch(hot);
    f.touch(cold);
    f.touch(hot);
    std::this_thread::sleep_for(timeout + 20ms);
    const auto start = std::chrono::steady_clock::now();
    f.cache.progress();  // the sweep has not seen either before
    f.touch(make(*f.world, 2));
    if (std::chrono::steady_clock::now() - start > timeout / 2) return false;
    EXPECT_TRUE(f.find(hot));
    EXPECT_FALSE(f.find(cold));
    return true;
  };
  bool done = false;
  for (int i = 0; i < 50 && !done; ++i) done = keeps_marks();
  EXPECT_TRUE(done) << "this machine is too busy";
}

}  // namespace
}  // namespace pinfold::testing::idle_imports_test

// SPDX-License-Identifier: BSD-3-Clause
// What the reaper does without another call of the cache: R36, R60.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/monitors/announce.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

namespace pinfold::testing::reaper_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t base = 0x7200'0000'0000;
constexpr std::uintptr_t size = 0x10000;
constexpr std::uintptr_t count = 1000;

std::uintptr_t nth(std::uintptr_t i) { return base + 2 * i * size; }

void announce(std::uintptr_t begin, std::uintptr_t end) { announce_gone(reinterpret_cast<void*>(begin), end - begin); }

/// Returns how long it took until `done` was true, at most a minute. Calls nothing else.
template <class Done>
std::chrono::milliseconds until(Done&& done) {
  const auto start = std::chrono::steady_clock::now();
  while (!done() && std::chrono::steady_clock::now() - start < 60s) std::this_thread::sleep_for(1ms);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
}

/// The device has closed a registration a moment before the reaper counts that.
void expect_sound_soon(local_fixture<>& f) {
  until([&] { return f.cache.statistics().open == f.device->open_count(); });
  f.expect_sound();
}

TEST(reaper, R60_unmapped_regions_are_deregistered_without_another_call) {
  for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
    local_fixture f({.closes = closes, .reaper = true});
    for (std::uintptr_t i = 0; i < count; ++i) f.touch(nth(i), nth(i) + size);
    announce(base, nth(count / 2));
    const auto took = until([&] { return f.device->open_count() == count / 2; });
    EXPECT_EQ(f.device->open_count(), count / 2) << "the others stay";
    std::printf("%lld ms\n", static_cast<long long>(took.count()));
    expect_sound_soon(f);
  }
}

TEST(reaper, R60_reaper_resumes_after_the_cache_was_empty) {
  local_fixture f({.reaper = true});
  for (int round = 0; round < 3; ++round) {
    f.touch(base, base + size);
    announce(base, base + 1);
    until([&] { return f.device->open_count() == 0; });
    ASSERT_EQ(f.device->open_count(), 0U) << "round " << round;
    std::this_thread::sleep_for(10ms);  // so that the reaper sleeps
  }
}

TEST(reaper, R60_superseded_registrations_are_closed_without_another_call) {
  local_fixture f({.closes = close_policy::deferred, .reaper = true});
  for (std::uintptr_t i = 0; i < count; ++i) f.touch(nth(i), nth(i) + size);
  f.touch(base, nth(count));
  until([&] { return f.device->open_count() == 1; });
  EXPECT_EQ(f.device->open_count(), 1U);
  expect_sound_soon(f);
}

TEST(reaper, R49_a_lease_turns_stale_without_another_call) {
  local_fixture f({.reaper = true});
  const auto held = f.acquire(base, base + size);
  announce(base, base + 1);
  until([&] { return held->stale(); });
  EXPECT_TRUE(held->stale());
}

}  // namespace
}  // namespace pinfold::testing::reaper_test

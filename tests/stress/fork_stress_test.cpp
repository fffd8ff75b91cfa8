// SPDX-License-Identifier: BSD-3-Clause
// Forks a process whose threads are in the middle of hits, misses and closes: the child finds the cache closed and
// never waits for a lock that no thread of it will release, and the parent is not affected.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"
#include "support/processes/child_process.hpp"

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing::fork_stress_test {
namespace {

constexpr int forks = sanitized ? 40 : 300;
constexpr std::uintptr_t region = 65536;
constexpr std::size_t regions = 8;
constexpr std::size_t budget = 6;

using fixture = local_fixture<>;
using cache_type = decltype(fixture::cache);

void keep_busy(const std::stop_token& stop, fixture& in, std::uint64_t which) {
  std::mt19937_64 random(test_seed() * 100 + which);
  while (!stop.stop_requested()) {
    const auto begin = region * (2 + random() % (regions - 1));
    auto held = in.acquire(begin, begin + 4096);
    if (random() % 64 == 0) in.invalidate(begin, begin + 4096);
  }
}

// Uses everything that a child inherited, as far as it may; returns 0 when all of it worked. The device is the
// parent's: its mutex may be held.
int use_what_was_inherited(fixture& in, cache_type::lease& held) {
  const auto got = in.acquire(region, region + 4096);
  if (got) return 1;
  if (got.error().code != errc::closed) return 2;
  if (in.cached(region, region + 4096)) return 3;
  if (in.cache.flush()) return 4;
  if (!held.release()) return 5;
  std::make_unique<cache_type>(std::move(in.cache)).reset();
  return 0;
}

TEST(fork, R37_fork_of_a_busy_cache_leaves_parent_and_child_sound) {
  fixture in({.max_count = budget});
  auto held = in.acquire(region, region + 4096);
  ASSERT_TRUE(held);
  watchdog guard([&] { std::fprintf(stderr, "%s\n", describe(in.cache.statistics()).c_str()); });
  {
    std::vector<std::jthread> busy;
    for (std::uint64_t i = 0; i < 3; ++i)
      busy.emplace_back([&, i](const std::stop_token& stop) { keep_busy(stop, in, i); });
    const auto missed = [&] { return in.cache.statistics().misses > static_cast<std::uint64_t>(forks); };
    for (int i = 0; i < forks || (!missed() && i < 10 * forks); ++i) {  // the busy threads may get no processor
      child_process child([&](line&) { return use_what_was_inherited(in, *held); });
      ASSERT_EQ(child.finish(), 0) << "fork " << i;
      EXPECT_TRUE(in.acquire(region, region + 4096));
      guard.beat();
    }
  }
  EXPECT_TRUE(held->release());
  EXPECT_TRUE(in.cache.flush());
  in.expect_sound();
  const auto now = in.cache.statistics();
  EXPECT_EQ(now.leases_now, 0U);
  EXPECT_EQ(now.opens, now.closes);
  EXPECT_EQ(in.device->open_count(), 0U);
  EXPECT_GT(now.misses, static_cast<std::uint64_t>(forks));
}

}  // namespace
}  // namespace pinfold::testing::fork_stress_test

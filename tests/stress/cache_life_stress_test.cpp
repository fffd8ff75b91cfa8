// SPDX-License-Identifier: BSD-3-Clause
// Caches that begin while another thread's last one ends (R53): each gets the same monitors as every other cache.
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::cache_life_stress_test {
namespace {

using std::chrono::steady_clock;

std::string monitors_now() { return cache{null_registrar{}}.monitors(); }

/// The number of caches made, and the monitors of the first cache that did not have the expected ones.
struct outcome {
  std::atomic<std::uint64_t> caches{0};
  std::atomic<std::uint64_t> others{0};
  std::mutex mutex;
  std::string first_other;  // guarded by mutex

  void note(const std::string& monitors, const std::string& expected) {
    caches.fetch_add(1);
    if (monitors == expected || others.fetch_add(1) != 0) return;
    const std::lock_guard guard(mutex);
    first_other = monitors;
  }
};

// Makes at most one cache at a time, so most of them end while no other thread has a cache.
void make_caches(const std::string& expected, std::uint64_t seed, steady_clock::time_point until, outcome& seen,
                 watchdog& guard) {
  std::mt19937_64 random(seed);
  std::array<std::byte, 64> buffer{};
  while (steady_clock::now() < until) {
    {
      cache one{null_registrar{}};
      seen.note(one.monitors(), expected);
      if (random() % 2 == 0) {
        EXPECT_TRUE(one.acquire(buffer));
      }
    }
    guard.beat();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
}

void unmap_all_day(std::atomic<bool>& stop) {
  constexpr std::size_t bytes = 4096;
  while (!stop.load()) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) ::munmap(at, bytes);
  }
}

TEST(cache_life, R53_cache_made_while_the_last_one_ends_has_all_monitors) {
  const auto expected = monitors_now();
  if (expected.starts_with("none")) GTEST_SKIP() << expected;
  outcome seen;
  watchdog guard([] {});
  std::atomic<bool> stop{false};
  {
    std::jthread unmapping([&] { unmap_all_day(stop); });
    std::vector<std::jthread> threads;
    const auto until = steady_clock::now() + stress_time();
    const auto seed = test_seed();
    for (std::uint64_t i = 0; i < 4; ++i)
      threads.emplace_back([&, i] { make_caches(expected, seed + i, until, seen, guard); });
    threads.clear();
    stop.store(true);
  }
  std::printf("%llu caches\n", static_cast<unsigned long long>(seen.caches.load()));
  EXPECT_EQ(seen.others.load(), 0U) << "of " << seen.caches.load() << "; the first: " << seen.first_other
                                    << ", instead of " << expected;
}

}  // namespace
}  // namespace pinfold::testing::cache_life_stress_test

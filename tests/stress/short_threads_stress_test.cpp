// SPDX-License-Identifier: BSD-3-Clause
// Thousands of threads that begin, hit, leave leases to others and end: nothing is lost, and a ledger made for one
// thread serves later ones.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/detail/ledger.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::short_threads_stress_test {
namespace {

constexpr std::size_t threads = sanitized ? 1'280 : 20'032;
constexpr std::size_t wave = 64;  // alive at the same time
constexpr int requests_each = 32;
constexpr std::size_t regions = 64;
constexpr std::size_t budget = 48;
constexpr std::uintptr_t region = 65536;

using fixture = local_fixture<>;
using lease = decltype(fixture::cache)::lease;

/// Leases whose threads may have ended. Thread-safe.
class shelf {
 public:
  /// Puts a lease in the place and returns the lease that was there.
  [[nodiscard]] lease exchange(std::size_t place, lease put) {
    std::lock_guard guard(mutex_);
    std::swap(places_[place % places_.size()], put);
    return put;
  }
  void clear() { places_ = {}; }

 private:
  std::mutex mutex_;
  std::array<lease, 16> places_;
};

struct arena {
  fixture all{{.max_count = budget}};
  shelf left;
  std::mutex mutex;
  std::set<const detail::ledger*> ledgers;
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> handed_over{0};

  void note_ledger() {
    const auto* const mine = detail::ledger::of_this_thread();
    std::lock_guard guard(mutex);
    if (mine != nullptr) ledgers.insert(mine);
  }

  void give_back(lease held) {
    if (!held) return;
    ++handed_over;
    if (!all.device->now().contains(held.registration().key) || !held.release()) ++wrong;
  }

  void live(std::uint64_t life) {
    thread_local lease parting;  // older than the ledger, so released after the thread has given the ledger back
    std::mt19937_64 random(test_seed() * threads + life);
    for (int n = 0; n < requests_each; ++n) {
      const auto begin = region * (1 + random() % regions);
      auto got = all.acquire(begin, begin + 4096);
      if (!got) {
        if (got.error().code != errc::over_budget) ++wrong;
      } else if (n == requests_each - 1) {
        parting = std::move(*got);
      } else if (random() % 8 == 0) {
        give_back(left.exchange(random(), std::move(*got)));
      }
    }
    note_ledger();
  }
};

TEST(short_threads, short_threads_leave_no_open_entry_and_share_ledgers) {
  arena in;
  watchdog guard([&] { std::fprintf(stderr, "%s\n", describe(in.all.cache.statistics()).c_str()); });
  for (std::uint64_t life = 0; life < threads; life += wave) {
    std::vector<std::jthread> alive;
    for (std::uint64_t i = 0; i < wave; ++i) alive.emplace_back([&in, life, i] { in.live(life + i); });
    alive.clear();
    ASSERT_LE(in.ledgers.size(), wave) << "after " << life + wave << " threads";
    guard.beat();
  }
  in.left.clear();
  EXPECT_TRUE(in.all.cache.flush());
  in.all.expect_sound();
  const auto now = in.all.cache.statistics();
  EXPECT_EQ(now.leases_now, 0U);
  EXPECT_EQ(in.all.device->open_count(), 0U);
  EXPECT_EQ(in.all.device->opened, now.opens);
  EXPECT_EQ(now.opens, now.closes);
  EXPECT_EQ(in.wrong, 0U);
  EXPECT_GT(now.hits, threads);
  EXPECT_GT(now.evicted, threads / 100);
  EXPECT_GT(in.handed_over, threads);
  std::printf("%zu ledgers\n%s\n", in.ledgers.size(), describe(now).c_str());
}

}  // namespace
}  // namespace pinfold::testing::short_threads_stress_test

// SPDX-License-Identifier: BSD-3-Clause
// What a cache publishes on the statistics page.
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"

#include <pinfold/observation/counters.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace pinfold::testing::statistics_page_test {
namespace {

using namespace std::chrono_literals;
using observation::cache_snapshot;
using observation::size_class_of;

constexpr std::uintptr_t base = 0x10000000;

struct statistics_page : ::testing::Test {
  std::string folder = page_folder::path();  // before the first cache
};

cache_options publishing(const std::string& name, cache_options options = {}) {
  options.name = name;
  options.publish_statistics = true;
  return options;
}

void expect_same(const statistics& seen, const statistics& own) {
  const auto a = observation::values_of(seen);
  const auto b = observation::values_of(own);
  for (std::size_t i = 0; i < observation::counters.size(); ++i) EXPECT_EQ(a[i], b[i]) << observation::counters[i].name;
}

// The page's number of leases may be a second old, and so count one that a request of before has released.
std::optional<cache_snapshot> published_without_leases(const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  auto seen = published_now(name);
  while (seen && seen->counters.leases_now != 0 && std::chrono::steady_clock::now() - start < 60s)
    seen = published_now(name);
  return seen;
}

// `statistics` has a field for each counter of the page, and no other: all of its bytes are accounted for.
TEST_F(statistics_page, has_every_counter) {
  EXPECT_EQ(observation::counters.size() * sizeof(std::uint64_t), sizeof(statistics));
}

TEST_F(statistics_page, says_what_the_cache_says) {
  local_fixture f(publishing("same", {.max_bytes = 0x8000, .max_count = 20}));
  for (std::uintptr_t i = 0; i < 40; ++i) f.touch(base + i * 0x10000, base + i * 0x10000 + 0x1000);
  for (int i = 0; i < 100; ++i) f.touch(base + 0x270000, base + 0x271000);
  f.invalidate(base + 0x270000, base + 0x271000);
  f.touch(base + 0x270000, base + 0x271000);
  const auto seen = published_without_leases("same");
  ASSERT_TRUE(seen);
  const auto own = f.cache.statistics();
  expect_same(seen->counters, own);
  EXPECT_GT(own.evicted, 0U);
  EXPECT_EQ(seen->kind, "pretend");
  EXPECT_EQ(seen->monitors, f.cache.monitors());
  EXPECT_EQ(seen->max_bytes, 0x8000U);
  EXPECT_EQ(seen->max_count, 20U);
  EXPECT_FALSE(seen->ended);
}

TEST_F(statistics_page, counts_leases_once_a_second) {
  local_fixture f(publishing("leases"));
  const auto one = f.acquire(base, base + 0x1000);
  const auto two = f.acquire(base, base + 0x1000);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t seen = 0;
  while (seen != 2 && std::chrono::steady_clock::now() - start < 60s)
    seen = published_now("leases")->counters.leases_now;
  EXPECT_EQ(seen, 2U);
}

TEST_F(statistics_page, shows_the_requests_that_wait) {
  local_fixture f(publishing("waiting"));
  std::atomic<bool> goes_on{false};
  f.device->on_open = [&] { goes_on.wait(false); };
  std::thread first([&] { f.touch(base, base + 0x1000); });
  while (f.device->calls == 0) std::this_thread::yield();
  std::thread second([&] { f.touch(base, base + 0x1000); });
  std::uint64_t most = 0;
  const auto start = std::chrono::steady_clock::now();
  while (most == 0 && std::chrono::steady_clock::now() - start < 60s)
    most = published_now("waiting")->counters.requests_waiting;
  EXPECT_EQ(most, 1U);
  goes_on = true;
  goes_on.notify_all();
  first.join();
  second.join();
  EXPECT_EQ(f.cache.statistics().requests_waiting, 0U);
  EXPECT_EQ(f.cache.statistics().hits, 1U);
}

TEST_F(statistics_page, shows_the_closes_that_are_due) {
  local_fixture f(publishing("due", {.closes = close_policy::deferred}));
  for (std::uintptr_t i = 0; i < 3; ++i) f.touch(base + i * 0x10000, base + i * 0x10000 + 0x1000);
  EXPECT_EQ(f.cache.statistics().closes_due, 0U);
  f.invalidate(base, base + 0x20000);
  EXPECT_EQ(published_now("due")->counters.closes_due, 2U);
  EXPECT_EQ(f.cache.statistics().open, 3U);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.cache.statistics().closes_due, 0U);
  EXPECT_EQ(f.cache.statistics().open, 1U);
}

TEST_F(statistics_page, distributes_driver_calls_by_size) {
  local_fixture f(publishing("sizes"));
  f.device->call_takes = 2ms;
  f.touch(base, base + 0x1000);
  f.touch(base + 0x100000, base + 0x100000 + 0x10001);
  f.device->call_takes = 0us;
  f.touch(base + 0x1000000, base + 0x1000000 + 0x1000);
  EXPECT_EQ(f.cache.evict(1), 1U);
  const auto seen = published_now("sizes");
  ASSERT_TRUE(seen);
  EXPECT_EQ(count(seen->opens), 3U);
  EXPECT_EQ(count(seen->opens[size_class_of(0x1000)]), 2U);
  EXPECT_EQ(count(seen->opens[size_class_of(0x10001)]), 1U);
  EXPECT_GE(seen->opens[0].sum, 2'000'000U);
  EXPECT_GE(seen->opens[0].largest, 2'000'000U);
  EXPECT_EQ(count(seen->misses), 3U);
  for (std::size_t i = 0; i < seen->opens.size(); ++i) EXPECT_GE(seen->misses[i].sum, seen->opens[i].sum);
  EXPECT_EQ(count(seen->closes), 1U);
  ASSERT_EQ(seen->slowest_opens.size(), 3U);
  EXPECT_TRUE(std::ranges::is_sorted(seen->slowest_opens, std::greater<>{}, &observation::slow_call::duration));
  std::set<std::uint64_t> begins;
  for (const auto& one : seen->slowest_opens) {
    begins.insert(one.begin);
    // On a busy machine, the thread may lose its processor in the quick call.
    EXPECT_GE(one.duration, one.begin == base + 0x1000000 ? 0U : 2'000'000U);
  }
  EXPECT_EQ(begins, (std::set<std::uint64_t>{base, base + 0x100000, base + 0x1000000}));
}

TEST_F(statistics_page, hits_are_in_no_distribution) {
  local_fixture f(publishing("hits"));
  for (int i = 0; i < 1000; ++i) f.touch(base, base + 0x1000);
  const auto seen = published_now("hits");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->counters.hits, 999U);
  EXPECT_EQ(count(seen->misses), 1U);
}

TEST_F(statistics_page, batches_are_distributed_as_single_requests_are) {
  local_fixture<fake_group_registrar> f(publishing("batch"));
  std::vector<range> asked;
  for (std::uintptr_t i = 0; i < 50; ++i) asked.push_back({base + i * 0x10000, base + i * 0x10000 + 0x1000});
  const auto leases = f.cache.acquire_batch(asked);
  ASSERT_TRUE(leases);
  const auto seen = published_now("batch");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->counters.misses, 50U);
  EXPECT_EQ(count(seen->opens), 50U);
  EXPECT_EQ(count(seen->misses), 50U);
}

TEST_F(statistics_page, keeps_the_last_failures_with_their_native_codes) {
  local_fixture f(publishing("failures"));
  for (int i = 1; i <= 11; ++i) {
    f.device->fail_opens([i](const range&, access_flags) {
      return error{errc::out_of_resources, native_kind::posix, i, "the device is tired"};
    });
    EXPECT_FALSE(f.acquire(base, base + 0x1000));
  }
  const auto seen = published_now("failures");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->errors_written, seen->counters.failed_opens);
  ASSERT_EQ(seen->errors.size(), observation::most_errors);
  const auto& last = seen->errors.back();
  EXPECT_EQ(last.native, 11);
  EXPECT_EQ(last.native_kind, static_cast<std::uint32_t>(native_kind::posix));
  EXPECT_EQ(last.code, static_cast<std::uint32_t>(errc::out_of_resources));
  EXPECT_EQ(last.begin, base);
  EXPECT_EQ(last.end, base + 0x1000);
  EXPECT_STREQ(last.message.data(), "the device is tired");
  f.device->fail_opens({});
  f.device->fail_closes(1);
  f.touch(base, base + 0x1000);
  static_cast<void>(f.cache.evict(1));
  const auto after = published_now("failures");
  ASSERT_TRUE(after);
  EXPECT_EQ(after->errors.back().call, static_cast<std::uint32_t>(observation::driver_call::close));
  EXPECT_EQ(after->errors.back().native, 5);
}

TEST_F(statistics_page, distributes_age_and_hits_of_what_is_evicted) {
  local_fixture f(publishing("evicted", {.max_count = 10, .shards = 1}));
  for (std::uintptr_t i = 0; i < 30; ++i) f.touch(base + i * 0x10000, base + i * 0x10000 + 0x1000);
  const auto seen = published_now("evicted");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->counters.evicted, 20U);
  EXPECT_EQ(count(seen->age_at_eviction), 20U);
  EXPECT_EQ(count(seen->hits_of_evicted), 20U);
  EXPECT_EQ(seen->hits_of_evicted.counts[0], 20U);  // none was used twice
}

/// Returns how many values are in the bucket of `least`, and in larger ones.
std::uint64_t count_from(const observation::histogram& of, std::chrono::nanoseconds least) {
  std::uint64_t all = 0;
  for (auto i = observation::bucket_of(static_cast<std::uint64_t>(least.count())); i < of.counts.size(); ++i)
    all += of.counts[i];
  return all;
}

// Eviction's hand finds `a` in use and evicts `b`; at the next request it finds `a` idle since then. That is not long,
// unless this thread loses its processor meanwhile: then it tries again.
TEST_F(statistics_page, distributes_the_idle_time_of_what_is_evicted) {
  constexpr int most_tries = 20;
  bool at_once = false;
  for (int tries = 0; !at_once && tries < most_tries; ++tries) {
    local_fixture f(publishing("idle", {.max_count = 2, .shards = 1}));
    const auto touch = [&](std::uintptr_t number) {
      f.touch(base + number * 0x10000, base + number * 0x10000 + 0x1000);
    };
    touch(0);
    touch(1);
    std::this_thread::sleep_for(400ms);
    const auto start = std::chrono::steady_clock::now();
    touch(0);
    touch(2);
    touch(3);
    at_once = std::chrono::steady_clock::now() - start < 100ms;
    const auto seen = published_now("idle");
    ASSERT_TRUE(seen);
    EXPECT_EQ(f.cache.statistics().hits, 1U);
    EXPECT_EQ(count(seen->age_at_eviction), 2U);
    EXPECT_EQ(count(seen->idle_at_eviction), 2U);
    EXPECT_EQ(count_from(seen->age_at_eviction, 200ms), 2U);
    const auto long_idle = count_from(seen->idle_at_eviction, 200ms);
    EXPECT_TRUE(at_once ? long_idle == 1U : long_idle >= 1U) << long_idle;
  }
  EXPECT_TRUE(at_once) << "the machine is too busy";
}

TEST_F(statistics_page, distributes_waits_for_other_threads) {
  local_fixture f(publishing("waits"));
  f.device->call_takes = 50ms;
  std::thread other([&] { f.touch(base, base + 0x1000); });
  while (f.device->calls == 0) std::this_thread::yield();
  f.touch(base, base + 0x1000);
  other.join();
  const auto seen = published_now("waits");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->waits.sum, static_cast<std::uint64_t>(seen->counters.waited.count()));
}

TEST_F(statistics_page, keeps_the_last_counters_of_an_ended_cache) {
  statistics own;
  {
    local_fixture f(publishing("ends"));
    for (std::uintptr_t i = 0; i < 5; ++i) f.touch(base + i * 0x10000, base + i * 0x10000 + 0x1000);
    own = f.cache.statistics();
  }
  const auto seen = published("ends");
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->ended);
  EXPECT_EQ(seen->counters.acquires, own.acquires);
  EXPECT_EQ(seen->counters.opens, 5U);
  EXPECT_EQ(seen->counters.closes, 5U);
  EXPECT_EQ(count(seen->closes), 5U);
}

TEST_F(statistics_page, is_written_for_imports) {
  fake_fixture f(publishing("imports"));
  const auto handle = f.world->allocate(1, 0x10000, 64);
  f.touch(handle);
  f.touch(f.world->allocate(1, 0x10000, 64));
  const auto seen = published_without_leases("imports");
  ASSERT_TRUE(seen);
  expect_same(seen->counters, f.cache.statistics());
  EXPECT_EQ(seen->counters.invalid, 1U);
  EXPECT_EQ(count(seen->opens), 2U);
}

TEST_F(statistics_page, caches_that_find_no_slot_work_and_are_counted) {
  std::vector<std::unique_ptr<local_fixture<>>> all;
  for (std::size_t i = 0; i < observation::most_caches + 5; ++i) {
    all.push_back(std::make_unique<local_fixture<>>(publishing("many " + std::to_string(i))));
    all.back()->touch(base, base + 0x1000);
  }
  const auto full = page_of();
  EXPECT_EQ(full.caches.size(), observation::most_caches);
  EXPECT_EQ(full.caches_unlisted, 5U);
  all.clear();
  EXPECT_EQ(page_of().caches_unlisted, 0U);
  local_fixture f(publishing("after"));
  f.touch(base, base + 0x1000);
  const auto seen = published_now("after");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->counters.opens, 1U);  // nothing of the slot's earlier cache
  EXPECT_EQ(count(seen->closes), 0U);
}

TEST_F(statistics_page, long_and_strange_names_stay_readable) {
  const std::string name = std::string(200, 'n');
  local_fixture f(publishing(name));
  local_fixture g(publishing("a\x1b[2Jb\n"));
  ASSERT_TRUE(published(name.substr(0, 63)));
  ASSERT_TRUE(published("a?[2Jb?"));
}

// Threads that make caches, use them and end them, while a reader reads.
TEST_F(statistics_page, stress_readers_see_whole_caches) {
  const local_fixture first(publishing("makes the page"));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      while (!done) {
        const std::string name(static_cast<std::size_t>(10 + t), static_cast<char>('X' + t));
        local_fixture f(publishing(name, {.max_bytes = static_cast<std::size_t>(t + 1) << 20U}));
        for (std::uintptr_t i = 0; i < 50; ++i) f.touch(base + i * 0x10000, base + i * 0x10000 + 0x1000);
      }
    });
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < end) {
    for (const auto& one : page_of().caches) {
      const auto t = one.max_bytes == UINT64_MAX ? 0 : (one.max_bytes >> 20U) - 1;
      if (t < 3 && one.name.find_first_of("XYZ") == 0) {
        EXPECT_EQ(one.name, std::string(10 + t, static_cast<char>('X' + t)));
      }
      EXPECT_LE(one.counters.opens, 50U) << one.name;
    }
  }
  done = true;
  for (auto& one : threads) one.join();
}

}  // namespace
}  // namespace pinfold::testing::statistics_page_test

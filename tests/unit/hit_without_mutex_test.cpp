// SPDX-License-Identifier: BSD-3-Clause
// Live entries are found while another thread holds the cache's mutex, by every kind of request. Also how such hits are
// counted, and that `find` never calls the driver, even when its pin turns out to be the last.
#include "support/fixtures/stopped_hit.hpp"

#include "core/sync_point.hpp"
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/detail/ledger.hpp>
#include <pinfold/registrars/null.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::hit_without_mutex_test {
namespace {

using namespace std::chrono_literals;

/// While it lives, another thread holds the mutex of the cache, in the middle of a flush; but not for ever.
template <class Cache>
class busy_mutex {
 public:
  explicit busy_mutex(Cache& cache) {
    inside = leave = gave_up = false;
    core::at_point = stay;
    holder_ = std::thread([&cache] { EXPECT_TRUE(cache.flush()); });
    while (!inside) std::this_thread::yield();
  }
  ~busy_mutex() {
    EXPECT_FALSE(gave_up) << "a thread waited for the mutex";
    leave = true;
    holder_.join();
    core::at_point = nullptr;
  }
  busy_mutex(const busy_mutex&) = delete;
  busy_mutex& operator=(const busy_mutex&) = delete;

 private:
  static void stay() noexcept {
    inside = true;
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (!leave && !gave_up) {
      std::this_thread::sleep_for(100us);
      if (std::chrono::steady_clock::now() > until) gave_up = true;
    }
  }

  inline static std::atomic<bool> inside{false};
  inline static std::atomic<bool> leave{false};
  inline static std::atomic<bool> gave_up{false};
  std::thread holder_;
};

std::vector<range> blocks(std::size_t count) {
  std::vector<range> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back({0x100000 + i * 0x10000, 0x101000 + i * 0x10000});
  return made;
}

bool counts_without_membarrier() { return detail::ledger::of_this_thread() == nullptr; }

TEST(hit_without_mutex, local_acquire_and_find_take_no_mutex) {
  local_fixture f;
  for (const auto& one : blocks(100)) f.touch(one.begin, one.end);
  {
    const busy_mutex busy(f.cache);
    for (int round = 0; round < 2; ++round)
      for (const auto& one : blocks(100)) {
        EXPECT_TRUE(f.acquire(one.begin, one.end));
        EXPECT_TRUE(f.cached(one.begin, one.end));
      }
  }
  f.expect_sound();
}

TEST(hit_without_mutex, imported_acquire_and_find_take_no_mutex) {
  fake_fixture f;
  std::vector<fake_handle> handles;
  for (std::uint64_t i = 0; i < 100; ++i) handles.push_back(f.world->allocate(i % 3, 0x10000 * (1 + i), 4096));
  for (const auto& one : handles) f.touch(one);
  {
    const busy_mutex busy(f.cache);
    for (int round = 0; round < 2; ++round)
      for (const auto& one : handles) {
        f.touch(one);
        auto found = f.find(one);
        ASSERT_TRUE(found);
        EXPECT_EQ(serial_at(found->data()), one.serial);
      }
  }
  f.expect_sound();
}

TEST(hit_without_mutex, first_find_of_a_thread_takes_no_mutex) {
  local_fixture f;
  f.touch(0x10000, 0x11000);
  {
    const busy_mutex busy(f.cache);
    std::thread([&] { EXPECT_TRUE(f.cached(0x10000, 0x11000)); }).join();
  }
}

TEST(hit_without_mutex, R26_batch_of_a_thousand_hits_takes_no_mutex) {
  local_fixture<fake_group_registrar> groups;
  local_fixture singly;
  const auto all = blocks(1000);
  const auto check = [&](auto& f) {
    // One worker: others fill the hits' table while one allocates a larger one, and hits alone do not make it larger.
    // The second batch puts the entries into the table that had no room there.
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(f.cache.acquire_batch(all, local_access, {.workers = 1}));
    const auto hits = f.cache.statistics().hits;
    {
      const busy_mutex busy(f.cache);
      std::vector<std::size_t> told;
      auto batch = f.cache.acquire_batch(all, local_access, {.progress = [&](std::size_t done, std::size_t total) {
                                           EXPECT_EQ(total, 1000U);
                                           told.push_back(done);
                                         }});
      ASSERT_TRUE(batch);
      const auto open = f.device->now();
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_TRUE(open.at((*batch)[i].registration().key).memory.contains(all[i])) << i;
      EXPECT_EQ(told, std::vector<std::size_t>{1000}) << "done all at once";
    }
    EXPECT_EQ(f.cache.statistics().hits, hits + 1000U);
    EXPECT_EQ(f.cache.statistics().leases_now, 0U);
    f.expect_sound();
  };
  check(groups);
  check(singly);
}

TEST(hit_without_mutex, R25_chunks_that_hit_take_no_mutex) {
  local_fixture f;
  const auto read = [&](unsigned workers) {
    auto chunks = f.cache.acquire_chunks(reinterpret_cast<void*>(0x100000), 0x40000, local_access,
                                         {.chunk_bytes = 0x1000, .workers = workers});
    ASSERT_TRUE(chunks);
    while (!chunks->done()) ASSERT_TRUE(chunks->next());
  };
  // One worker: what a second one opens while the first makes the table of hits larger is listed there later, by its
  // first hit, which takes the mutex.
  read(1);
  {
    const busy_mutex busy(f.cache);
    read(2);
  }
  EXPECT_EQ(f.cache.statistics().hits, 64U);
}

TEST(hit_without_mutex, R26_batch_of_hits_and_misses_keeps_its_order) {
  local_fixture<fake_group_registrar> f;
  const auto all = blocks(300);
  for (std::size_t i = 0; i < all.size(); i += 3) f.touch(all[i].begin, all[i].end);
  auto batch = f.cache.acquire_batch(all);
  ASSERT_TRUE(batch);
  const auto open = f.device->now();
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(open.at((*batch)[i].registration().key).memory, all[i]) << i;
  EXPECT_EQ(f.cache.statistics().hits, 100U);
  EXPECT_EQ(f.cache.statistics().misses, 300U);
  f.expect_sound();
}

TEST(hit_without_mutex, R26_failed_batch_releases_its_hits) {
  local_fixture f;
  const auto all = blocks(10);
  for (std::size_t i = 0; i < 5; ++i) f.touch(all[i].begin, all[i].end);
  f.device->fail_opens([](const range&, access_flags) { return std::optional(error{errc::driver_error}); });
  EXPECT_FALSE(f.cache.acquire_batch(all));
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(hit_without_mutex, R26_batch_with_missing_rights_counts_access_misses) {
  local_fixture f;
  const auto all = blocks(3);
  for (const auto& one : all) f.touch(one.begin, one.end, access_flags::local_read);
  EXPECT_TRUE(f.cache.acquire_batch(all, access_flags::local_read | access_flags::local_write));
  EXPECT_EQ(f.cache.statistics().misses_access, 3U);
}

TEST(hit_without_mutex, R43_finds_do_not_count_as_acquires) {
  for (int round = 0; round < 3; ++round) {  // the next cache gets the number of this one
    local_fixture f;
    f.touch(0x10000, 0x11000);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 1000; ++n) ASSERT_TRUE(f.cached(0x10000, 0x11000));
      });
    for (auto& one : threads) one.join();
    EXPECT_FALSE(f.cached(0x20000, 0x21000));
    const auto now = f.cache.statistics();
    EXPECT_EQ(now.found, 4000U);
    EXPECT_EQ(now.find_misses, 1U);
    EXPECT_EQ(now.valid, 4000U);
    EXPECT_EQ(now.hits, 0U);
    EXPECT_EQ(now.acquires, 1U);
    EXPECT_EQ(now.leases_now, 0U);
    EXPECT_EQ(f.cache.dump().at(0).hits, 0U) << "nor hits of the entry";
    f.expect_sound();
  }
}

TEST(hit_without_mutex, R48_find_that_races_with_invalidate_defers_the_close) {
  if (counts_without_membarrier()) GTEST_SKIP() << "hints need membarrier";
  local_fixture f;
  f.touch(0x10000, 0x11000);
  f.touch(0x10000, 0x11000);  // from now on the thread hints it
  next_interruption = {"after_pin", [&] { f.invalidate(0x10000, 0x11000); }};
  EXPECT_FALSE(f.cached(0x10000, 0x11000));
  EXPECT_EQ(f.cache.statistics().closes, 0U);
  EXPECT_EQ(f.cache.statistics().find_misses, 1U);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 0U);
}

// Returns imported memory that this thread hints from now on.
fake_handle hinted(fake_fixture<>& f) {
  const auto made = f.world->allocate(1, 0x10000, 4096);
  f.touch(made);
  f.touch(made);
  return made;
}

TEST(hit_without_mutex, R48_find_of_an_import_that_races_with_invalidate_defers_the_close) {
  if (counts_without_membarrier()) GTEST_SKIP() << "hints need membarrier";
  fake_fixture f;
  const auto old = hinted(f);
  next_interruption = {"after_pin", [&] { f.cache.invalidate({1}, old.allocation()); }};
  EXPECT_FALSE(f.find(old));
  EXPECT_EQ(f.world->closes, 0U);
  f.touch(f.world->allocate(1, 0x10000, 4096));
  EXPECT_EQ(f.world->open_count(), 1U) << "the next miss has closed it";
}

TEST(hit_without_mutex, acquire_that_races_with_invalidate_closes_and_opens_again) {
  if (counts_without_membarrier()) GTEST_SKIP() << "hints need membarrier";
  local_fixture f;
  f.touch(0x10000, 0x11000);
  f.touch(0x10000, 0x11000);  // from now on the thread hints it
  next_interruption = {"after_pin", [&] { f.invalidate(0x10000, 0x11000); }};
  EXPECT_TRUE(f.acquire(0x10000, 0x11000));
  EXPECT_EQ(f.device->opened, 2U);
  EXPECT_EQ(f.device->open_count(), 1U);
}

// Between the hint and the pin the memory went to another allocation: the same peer and range, another token.
TEST(hit_without_mutex, R4_hint_of_imported_memory_is_compared_by_its_whole_token) {
  if (counts_without_membarrier()) GTEST_SKIP() << "hints need membarrier";
  fake_fixture f;
  const auto old = hinted(f);
  const auto fresh = f.world->allocate(1, 0x10000, 4096);
  auto got = f.acquire(fresh);
  ASSERT_TRUE(got);
  EXPECT_EQ(serial_at(got->data()), fresh.serial);
  EXPECT_FALSE(f.find(old)) << "nor the other way round";
  EXPECT_TRUE(got->stale()) << "since `find` replaces what has another token";
}

TEST(hit_without_mutex, peers_do_not_use_each_others_hints) {
  fake_fixture f;
  const auto one = hinted(f);
  constexpr auto keys = std::uint64_t{1} << 33U;  // that hints distinguish: peers that differ by as much share a hint
  EXPECT_FALSE(f.cache.find({1 + keys}, one, one.base, one.size));
  EXPECT_FALSE(f.cache.find({2}, one, one.base, one.size));
  EXPECT_TRUE(f.cache.find({1}, one, one.base, one.size));
}

// More records of one granule than the table searches in one place. When the table grows, later records go in first, so
// that some of these find no room any more.
TEST(hit_without_mutex, records_that_a_grown_table_has_no_room_for_are_found_without_opening_again) {
  constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
  constexpr std::uintptr_t page = 4096;
  cache<null_registrar> many({}, {.monitor = monitor_choice::manual});
  const auto acquire = [&](std::uintptr_t begin, std::size_t bytes) {
    EXPECT_TRUE(many.acquire(reinterpret_cast<void*>(begin), bytes));
  };
  const auto acquire_overlapping = [&] {
    for (std::uintptr_t i = 0; i < 48; ++i) acquire(base + i * page, 300 * page);
  };
  acquire_overlapping();
  for (std::uintptr_t i = 1; i <= 20000; ++i) acquire(base + i * 512 * page, page);
  std::thread(acquire_overlapping).join();  // without this thread's hints
  acquire_overlapping();
  EXPECT_EQ(many.statistics().opens, 20048U);
}

}  // namespace
}  // namespace pinfold::testing::hit_without_mutex_test

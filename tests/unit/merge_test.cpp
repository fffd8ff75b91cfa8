// SPDX-License-Identifier: BSD-3-Clause
// What is registered for a request that overlaps registrations (R62), and drivers that are called on one thread at a
// time (R63).
#include "support/fixtures/local_fixture.hpp"

#include "index/record_page.hpp"

#include <pinfold/detail/record.hpp>
#include <pinfold/monitors/announce.hpp>

#include <algorithm>
#include <thread>
#include <vector>

namespace pinfold::testing::merge_test {
namespace {

using enum access_flags;

cache_options merging(merge_policy merge = merge_policy::overlaps, std::size_t limit = unlimited) {
  cache_options options;
  options.merge = merge;
  options.merge_limit = limit;
  return options;
}

/// Returns the only registration that is left after the closes that are due.
fake_device::registered only_one(local_fixture<>& f) {
  EXPECT_TRUE(f.cache.progress());
  const auto all = f.device->now();
  EXPECT_EQ(all.size(), 1U);
  return all.empty() ? fake_device::registered{} : all.begin()->second;
}

TEST(merge, R62_overlapping_requests_become_one_registration_with_all_rights) {
  local_fixture f(merging());
  f.touch(0x10000, 0x12000, local_read);
  f.touch(0x20000, 0x22000, local_write);
  f.touch(0x11000, 0x21000, local_read);
  const auto one = only_one(f);
  EXPECT_EQ(one.memory, (range{0x10000, 0x22000}));
  EXPECT_EQ(one.access, local_access);
  EXPECT_TRUE(f.cached(0x10000, 0x22000, local_access));
  f.expect_sound();
}

TEST(merge, R62_without_it_each_request_is_registered_as_asked) {
  local_fixture f;
  f.touch(0x10000, 0x12000);
  f.touch(0x11000, 0x13000);
  EXPECT_EQ(f.device->open_count(), 2U);
}

TEST(merge, R62_neighbours_that_only_touch_stay_apart) {
  local_fixture f(merging());
  f.touch(0x10000, 0x12000);
  f.touch(0x12000, 0x14000);
  EXPECT_EQ(f.device->open_count(), 2U);
}

TEST(merge, R62_leased_registration_stays_open_until_its_release) {
  local_fixture f(merging());
  auto held = f.acquire(0x10000, 0x12000);
  ASSERT_TRUE(held);
  f.touch(0x11000, 0x13000);
  EXPECT_EQ(f.device->open_count(), 2U);
  EXPECT_FALSE(held->stale()) << "its memory is the same";
  EXPECT_TRUE(held->release());
  EXPECT_EQ(only_one(f).memory, (range{0x10000, 0x13000}));
}

TEST(merge, R62_overlapping_chain_does_not_grow_beyond_the_limit) {
  local_fixture f(merging(merge_policy::overlaps, 0x8000));
  for (std::uintptr_t at = 0x10000; at < 0x40000; at += 0x1000) f.touch(at, at + 0x1800);
  for (const auto& [key, one] : f.device->now()) EXPECT_LE(one.memory.size(), 0x8000U);
  EXPECT_LE(f.device->open_count(), 12U);
}

TEST(merge, R62_request_above_the_limit_takes_only_what_lies_inside_it) {
  local_fixture f(merging(merge_policy::overlaps, 0x1000));
  f.touch(0x10000, 0x11000, local_write);
  f.touch(0x0f000, 0x20000, local_read);
  f.touch(0x0e000, 0x10000, local_read);
  EXPECT_EQ(f.device->open_count(), 3U) << "neither part may grow";
}

TEST(merge, R62_rights_alone_widen_the_registration_around) {
  local_fixture f(merging(merge_policy::rights, 1));
  f.touch(0x10000, 0x20000, local_read);
  f.touch(0x11000, 0x12000, local_write);
  const auto one = only_one(f);
  EXPECT_EQ(one.memory, (range{0x10000, 0x20000})) << "as large as one registration was before";
  EXPECT_EQ(one.access, local_access);
  f.touch(0x1f000, 0x21000, local_read);
  EXPECT_EQ(f.device->open_count(), 2U) << "a mere overlap is not merged";
}

TEST(merge, R62_request_is_registered_alone_if_the_union_is_refused) {
  local_fixture f(merging());
  f.touch(0x10000, 0x12000, local_write);
  f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.size() <= 0x2000) return std::nullopt;
    return error{errc::invalid_range, native_kind::posix, 14, "a part is not mapped"};
  });
  f.touch(0x11000, 0x13000, local_read);
  EXPECT_EQ(f.device->open_count(), 2U);
  EXPECT_EQ(f.cache.statistics().failed_acquires, 0U);
  f.expect_sound();
}

TEST(merge, R62_union_of_rights_is_given_up_before_the_request) {
  local_fixture f(merging());
  f.touch(0x10000, 0x12000, local_write);
  f.device->fail_opens([](const range&, access_flags access) -> std::optional<error> {
    if (!contains_all(access, local_access)) return std::nullopt;
    return error{errc::not_permitted, native_kind::posix, 13, "a part is read-only"};
  });
  f.touch(0x11000, 0x13000, local_read);
  EXPECT_TRUE(f.cached(0x10000, 0x13000, local_read));
  EXPECT_TRUE(f.cached(0x10000, 0x12000, local_write)) << "what was given up stays where it was";
}

TEST(merge, R62_union_above_the_budget_is_not_tried) {
  auto options = merging();
  options.max_bytes = 0x2000;
  local_fixture f(options);
  f.touch(0x10000, 0x12000);
  f.touch(0x11000, 0x13000);
  EXPECT_EQ(only_one(f).memory, (range{0x11000, 0x13000}));
  EXPECT_EQ(f.cache.statistics().failed_opens, 0U);
}

TEST(merge, R62_union_is_given_up_rather_than_bypass_the_budget) {
  auto options = merging();
  options.max_bytes = 0x4000;
  options.full = when_full::bypass;
  local_fixture f(options);
  auto held = f.acquire(0x10000, 0x12000);
  f.touch(0x11000, 0x13000);
  EXPECT_EQ(f.cache.statistics().bypasses, 0U);
  EXPECT_TRUE(f.cached(0x11000, 0x13000));
}

TEST(merge, R62_persistent_and_bypass_registrations_are_left_alone) {
  local_fixture f(merging());
  auto persistent = f.acquire(0x10000, 0x12000, local_access, {.persistent = true});
  auto bypass = f.acquire(0x20000, 0x22000, local_access, {.bypass = true});
  ASSERT_TRUE(persistent && bypass);
  f.touch(0x11000, 0x21000);
  EXPECT_TRUE(f.cached(0x11000, 0x21000));
  EXPECT_FALSE(f.cached(0x10000, 0x21000));
}

TEST(merge, R62_remote_rights_extend_to_the_request_but_not_to_its_pages) {
  local_fixture f(merging());
  f.device->limits.granularity = 4096;
  f.touch(0x10100, 0x10200, remote_read);
  f.touch(0x10180, 0x10300, local_write);
  EXPECT_EQ(only_one(f).memory, (range{0x10100, 0x10300}));
}

TEST(merge, R62_request_waits_for_an_overlapping_open_and_merges_it) {
  local_fixture f(merging());
  std::atomic<bool> asked = false;
  std::atomic<bool> answer = false;
  f.device->fail_opens([&](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != 0x10000 || memory.end != 0x12000) return std::nullopt;
    asked = true;
    while (!answer) std::this_thread::yield();
    return std::nullopt;
  });
  std::jthread first([&] { f.touch(0x10000, 0x12000); });
  while (!asked) std::this_thread::yield();
  std::jthread second([&] { f.touch(0x11000, 0x13000); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  answer = true;
  first.join();
  second.join();
  EXPECT_EQ(only_one(f).memory, (range{0x10000, 0x13000}));
}

// More requests than a page of records has: those whose waits end together need more entries than there are.
TEST(merge, R62_requests_that_wait_in_vain_for_an_overlapping_open_are_served) {
  auto options = merging();
  options.wait_timeout = std::chrono::milliseconds(200);
  local_fixture f(options);
  std::atomic<bool> asked = false;
  std::atomic<bool> answer = false;
  f.device->on_open = [&] {
    if (asked.exchange(true)) return;
    while (!answer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::jthread slow([&] { f.touch(0x10000, 0x20000); });
  while (!asked) std::this_thread::yield();
  std::vector<std::jthread> others;
  for (std::uintptr_t i = 0; i < index::record_page::capacity_for(sizeof(detail::record)); ++i)
    others.emplace_back([&f, i] {
      const auto lease = f.acquire(0x1f000, 0x20000 + 0x1000 * (i + 1));
      EXPECT_TRUE(lease || lease.error() == errc::timed_out);  // it may have joined one that waits, too
    });
  others.clear();
  answer = true;
  slow.join();
  f.expect_sound();
}

// Threads whose ranges overlap all the time: whatever is merged, each lease covers what it asked for.
TEST(merge, R62_threads_that_overlap_get_what_they_ask_for) {
  local_fixture f(merging(merge_policy::overlaps, 0x8000));
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&f, t] {
      for (std::uintptr_t i = 0; i < 500; ++i) {
        const auto begin = 0x10000 + (i * 7 + t * 3) % 32 * 0x800;
        f.touch(begin, begin + 0x1800, (i + t) % 2 == 0 ? local_read : local_write);
        if (i % 16 == 0) f.invalidate(begin, begin + 1);
      }
    });
  threads.clear();
  f.expect_sound();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

/// A registrar that notes how many threads call it at once.
class one_thread_registrar : public fake_registrar {
 public:
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    const calling now;
    return fake_registrar::open(memory, access);
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    const calling now;
    return fake_registrar::close(made);
  }
  static inline std::atomic<int> most = 0;

 private:
  struct calling {
    calling() {
      most = std::max(most.load(), ++inside);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ~calling() { --inside; }
    static inline std::atomic<int> inside = 0;
  };
};

int most_at_once(bool serial) {
  one_thread_registrar::most = 0;
  cache_options options;
  options.serial = serial;
  options.max_count = 8;
  local_fixture<one_thread_registrar> f(options);
  std::vector<std::jthread> threads;
  for (std::uintptr_t t = 0; t < 4; ++t)
    threads.emplace_back([&f, t] {
      for (std::uintptr_t i = 0; i < 100; ++i) f.touch(0x10000 * (16 * t + i % 16), 0x10000 * (16 * t + i % 16) + 1);
    });
  threads.clear();
  return one_thread_registrar::most;
}

TEST(serial, R63_driver_is_called_on_one_thread_at_a_time) {
  EXPECT_EQ(most_at_once(true), 1);
  int most = 0;
  for (int tries = 0; most < 2 && tries < 100; ++tries) most = most_at_once(false);
  EXPECT_GT(most, 1) << "else the test shows nothing";
}

// An event comes before its memory goes, and the cache may have marked only a part of what it touches.
TEST(merge, R62_registration_whose_invalidation_is_pending_is_not_merged) {
  constexpr std::uintptr_t base = 0x7100'0000'0000;
  constexpr std::uintptr_t size = 0x10000;
  constexpr std::uintptr_t page = 0x1000;
  constexpr std::uintptr_t last = base + 2000 * size;
  local_fixture f(merging());
  for (auto one = base; one < last; one += 2 * size) f.touch(one, one + size);
  ASSERT_TRUE(f.acquire(last, last + size, local_access, {.persistent = true}));
  f.touch(last + size - page, last + size + page);  // is not merged with a persistent one
  f.cache.unpersist(reinterpret_cast<void*>(last), size);
  announce_gone(reinterpret_cast<void*>(base), last + page - base);
  f.touch(last + size, last + size + 2 * page);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_FALSE(f.cached(last, last + page));
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::merge_test

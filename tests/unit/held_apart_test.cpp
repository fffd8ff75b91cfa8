// SPDX-License-Identifier: BSD-3-Clause
// Leases on memory that overlaps: misses do not visit all that they hold, and events still find it.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/registrars/null.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinfold::testing::held_apart_test {
namespace {

constexpr std::uintptr_t page = 4096;
constexpr std::uintptr_t middle = std::uintptr_t{1} << 40;

/// A range that is a page larger on both sides than the one before.
constexpr range nested(std::size_t number) { return {middle - (number + 1) * page, middle + (number + 1) * page}; }

/// Makes a lease on each of so many nested ranges. Each registration supersedes the one before, which its lease keeps.
template <class R>
auto leases_on_nested(local_fixture<R>& f, std::size_t count) {
  std::vector<typename pinfold::cache<R>::lease> held;
  for (std::size_t i = 0; i < count; ++i) {
    auto got = f.acquire(nested(i).begin, nested(i).end);
    EXPECT_TRUE(got) << describe(got.error());
    if (got) held.push_back(std::move(*got));
  }
  return held;
}

TEST(held_apart, R31_event_reaches_all_leases_on_nested_memory) {
  local_fixture f;
  const auto held = leases_on_nested(f, 1000);
  ASSERT_EQ(held.size(), 1000U);
  f.invalidate(nested(600).begin, nested(600).begin + page);  // in those from 600 on
  for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i].stale(), i >= 600) << i;
  EXPECT_EQ(f.device->open_count(), 1000U);
  f.expect_sound();
}

TEST(held_apart, last_releases_close_what_they_hold) {
  local_fixture f;
  auto held = leases_on_nested(f, 300);
  for (std::size_t i = 0; i < held.size(); ++i) static_cast<void>(held[i * 7 % 300].release());
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

TEST(held_apart, R24_end_of_the_cache_closes_what_leases_hold) {
  const auto device = std::make_shared<fake_device>();
  std::vector<pinfold::cache<fake_registrar>::lease> held;
  {
    local_fixture f({.drain_timeout = std::chrono::milliseconds{1}}, device);
    held = leases_on_nested(f, 300);
  }
  EXPECT_EQ(device->open_count(), 0U);
  for (const auto& one : held) EXPECT_TRUE(one.closed());
}

TEST(held_apart, hit_is_the_newest_of_nested_registrations) {
  local_fixture f;
  const auto held = leases_on_nested(f, 300);
  const auto before = f.cache.statistics();
  const auto again = f.acquire(nested(20).begin, nested(20).end);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->registration().key, held.back().registration().key);
  EXPECT_EQ(f.cache.statistics().hits, before.hits + 1);
}

using time = std::chrono::nanoseconds;

/// Returns the time of the fastest few of the misses behind the first `depth`.
template <class Range>
time miss_behind(std::size_t depth, Range&& nth) {
  pinfold::cache cache(null_registrar(), keeping({}));
  std::vector<typename decltype(cache)::lease> held;
  const auto acquire = [&] {
    const range next = nth(held.size());
    auto got = cache.acquire(reinterpret_cast<void*>(next.begin), next.size());
    ASSERT_TRUE(got);
    held.push_back(std::move(*got));
  };
  while (held.size() < depth) acquire();
  auto best = time::max();
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) acquire();
    best = std::min<time>(best, std::chrono::steady_clock::now() - start);
  }
  return best;
}

template <class Range>
void expect_no_cliff(Range&& nth) {
  const auto few = miss_behind(10, nth);
  const auto many = miss_behind(10'000, nth);
  EXPECT_LT(many, 20 * few) << few.count() << " ns, " << many.count()
                            << " ns";  // 50 to 300 times where all are visited
}

TEST(held_apart, miss_does_not_visit_the_leases_that_it_nests_around) { expect_no_cliff(nested); }

TEST(held_apart, miss_does_not_visit_the_windows_that_it_overlaps) {
  expect_no_cliff([](std::size_t number) { return range{middle + number * page, middle + (number + 12'000) * page}; });
}

}  // namespace
}  // namespace pinfold::testing::held_apart_test

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What every registrar of local memory must do. A rig says how to make one:
///
///     struct rig {
///       using registrar_type = …;
///       static constexpr bool touches_memory = true;   // whether bad memory is refused
///       static constexpr const char* counted = "VmPin";  // the kernel's count in /proc/self/status; or null
///       static constexpr bool overlaps = false;  // only where what overlaps partly is refused with already_mapped
///       registrar_type make();                         // called once
///       using interface = through_c;  // only where the cache is used through C
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(mine, registrar_suite, rig);
#pragma once

#include "support/fixtures/interface.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/test_pages.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// What the rigs of registrars that pin pages have in common.
struct pinning_rig {
  static constexpr bool touches_memory = true;
  static constexpr const char* counted = "VmPin";
};

template <class Rig>
class registrar_suite : public ::testing::Test {
 protected:
  using registrar_type = typename Rig::registrar_type;
  static constexpr std::size_t page = test_pages::page;

  static cache_options keeping(cache_options options = {}) {
    options.monitor = monitor_choice::manual;
    return options;
  }

  /// The bytes that the kernel counts for the registrar now; 0 where the kernel does not count them.
  static std::size_t counted() { return Rig::counted == nullptr ? 0 : counted_by_kernel(Rig::counted); }

  static auto interface_of_rig() {
    if constexpr (requires { typename Rig::interface; })
      return typename Rig::interface{};
    else
      return through_cpp{};
  }
  using cache_type = typename decltype(interface_of_rig())::template cache<registrar_type>;

  static constexpr bool overlaps() {
    if constexpr (requires { Rig::overlaps; }) return Rig::overlaps;
    return true;
  }

  Rig rig;
  test_pages memory{64};
};

TYPED_TEST_SUITE_P(registrar_suite);

TYPED_TEST_P(registrar_suite, opens_and_closes) {
  auto registrar = this->rig.make();
  for (int i = 0; i < 100; ++i) {
    auto made = registrar.open(this->memory.pages(0, 4), local_access);
    ASSERT_TRUE(made) << describe(made.error());
    EXPECT_TRUE(registrar.close(*made));
  }
}

TYPED_TEST_P(registrar_suite, R22_overlapping_nested_and_equal_ranges_coexist) {
  if (!this->overlaps()) GTEST_SKIP() << "this driver registers nothing twice";
  auto registrar = this->rig.make();
  std::vector<decltype(registrar.open({}, local_access))> made;
  for (const auto& one :
       {this->memory.pages(0, 8), this->memory.pages(4, 8), this->memory.pages(1, 2), this->memory.pages(0, 8),
        range{this->memory.pages(3, 1).begin + 5, this->memory.pages(3, 1).begin + 9}}) {
    made.push_back(registrar.open(one, local_access));
    ASSERT_TRUE(made.back()) << describe(made.back().error());
  }
  for (const std::size_t which : {2U, 0U, 4U, 1U, 3U}) EXPECT_TRUE(registrar.close(*made[which]));
}

TYPED_TEST_P(registrar_suite, unmapped_memory_is_refused_as_invalid_range_without_leaks) {
  if (!TypeParam::touches_memory) GTEST_SKIP() << "this registrar does not look at memory";
  auto registrar = this->rig.make();
  auto made = registrar.open(this->memory.pages(60, 8), local_access);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, errc::invalid_range);
  EXPECT_NE(made.error().native, 0);
  auto good = registrar.open(this->memory.pages(60, 4), local_access);
  ASSERT_TRUE(good);
  EXPECT_TRUE(registrar.close(*good));
}

TYPED_TEST_P(registrar_suite, works_on_many_threads) {
  auto registrar = this->rig.make();
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const auto first = this->overlaps() ? (t * 7 + i) % 50 : t * 16 + i % 8;  // or each thread has its own pages
        auto made = registrar.open(this->memory.pages(first, 1 + i % 8), local_access);
        ASSERT_TRUE(made) << describe(made.error());
        EXPECT_TRUE(registrar.close(*made));
      }
    });
}

TYPED_TEST_P(registrar_suite, R20_R21_cache_hits_inside_a_registration) {
  typename TestFixture::cache_type cache(this->rig.make(), this->keeping());
  auto outer = cache.acquire(this->memory.at(1), 3 * this->page);
  ASSERT_TRUE(outer) << describe(outer.error());
  auto inner = cache.acquire(this->memory.at(2), this->page);
  ASSERT_TRUE(inner);
  EXPECT_EQ(cache.statistics().opens, 1U);
  EXPECT_TRUE(outer->release());
  EXPECT_EQ(cache.statistics().closes, 0U) << "the inner user still holds it";
  EXPECT_TRUE(inner->release());
  EXPECT_EQ(cache.statistics().closes, 0U) << "idle, not closed";
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);
}

TYPED_TEST_P(registrar_suite, R21_the_kernel_counts_one_registration_and_none_after_flush) {
  if (TypeParam::counted == nullptr) GTEST_SKIP() << "the kernel does not count for this registrar";
  typename TestFixture::cache_type cache(this->rig.make(), this->keeping());
  const auto start = this->counted();
  auto outer = cache.acquire(this->memory.at(1), 3 * this->page);
  ASSERT_TRUE(outer) << describe(outer.error());
  EXPECT_EQ(this->counted(), start + 3 * this->page);
  auto inner = cache.acquire(this->memory.at(2), this->page);
  EXPECT_EQ(this->counted(), start + 3 * this->page) << "a hit inside registers nothing";
  EXPECT_TRUE(outer->release());
  EXPECT_EQ(this->counted(), start + 3 * this->page) << "the inner user still holds it";
  EXPECT_TRUE(inner->release());
  EXPECT_EQ(this->counted(), start + 3 * this->page) << "idle, not closed";
  EXPECT_TRUE(cache.flush());
  for (int i = 0; i < 20'000 && this->counted() != start; ++i) ::usleep(1000);  // after the kernel's grace period
  EXPECT_EQ(this->counted(), start);
  EXPECT_EQ(cache.statistics().opens, 1U);
  EXPECT_EQ(cache.statistics().closes, 1U);
}

TYPED_TEST_P(registrar_suite, refuses_bad_requests_without_a_cache) {
  auto registrar = this->rig.make();
  const auto limits = registrar.limits();
  const range good = this->memory.pages(0, 1);
  std::vector<std::pair<range, errc>> bad = {{{good.begin, good.begin}, errc::invalid_range},
                                             {{good.end, good.begin}, errc::invalid_range},
                                             {{0, 0}, errc::invalid_range}};
  if (limits.max_bytes != SIZE_MAX) bad.push_back({{good.begin, good.begin + limits.max_bytes + 1}, errc::too_large});
  for (const auto& [what, why] : bad) {
    auto refused = registrar.open(what, local_access);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, why) << describe(refused.error());
  }
  EXPECT_EQ(registrar.open(good, access_flags::none).error().code, errc::invalid_argument);
  for (const auto one : {access_flags::remote_read, access_flags::remote_write, access_flags::remote_atomic})
    if (!contains_all(limits.supported, one)) {
      auto refused = registrar.open(good, local_access | one);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, errc::unsupported) << describe(refused.error());
    }
  if constexpr (group_registrar<typename TypeParam::registrar_type>) {
    std::vector<range> mixed;
    for (const auto& [what, why] : bad) mixed.insert(mixed.end(), {good, what});
    mixed.push_back(good);
    std::vector<decltype(registrar.open(good, local_access))> made(mixed.size());
    registrar.open_many(mixed, local_access, made);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      ASSERT_EQ(made[i].has_value(), i % 2 == 0) << i;
      if (made[i]) {
        EXPECT_TRUE(registrar.close(*made[i]));
      } else {
        EXPECT_EQ(made[i].error().code, bad[i / 2].second);
      }
    }
  }
}

TYPED_TEST_P(registrar_suite, moved_from_registrar_does_not_crash) {
  auto first = this->rig.make();
  auto made = first.open(this->memory.pages(0, 1), local_access);
  ASSERT_TRUE(made);
  auto second = std::move(first);
  EXPECT_TRUE(contains_all(first.limits().supported, local_access));
  if (auto again = first.open(this->memory.pages(0, 1), local_access)) {
    EXPECT_TRUE(first.close(*again)) << "nothing was there to be moved";
  } else {
    EXPECT_EQ(again.error().code, errc::closed);
    EXPECT_EQ(first.close(*made).error().code, errc::closed);
  }
  EXPECT_TRUE(second.close(*made)) << "what was registered went along";
}

TYPED_TEST_P(registrar_suite, R12_evicts_under_a_budget) {
  typename TestFixture::cache_type cache(this->rig.make(), this->keeping({.max_count = 4}));
  for (std::size_t i = 0; i < 40; i += 2) ASSERT_TRUE(cache.acquire(this->memory.at(i), this->page));
  const auto now = cache.statistics();
  EXPECT_EQ(now.open, 4U);
  EXPECT_EQ(now.evicted, 16U);
}

TYPED_TEST_P(registrar_suite, R26_registers_batches_through_a_cache) {
  typename TestFixture::cache_type cache(this->rig.make(), this->keeping());
  std::vector<range> ranges;
  for (std::size_t i = 0; i < 60; i += 2) ranges.push_back(this->memory.pages(i, 1));
  auto batch = cache.acquire_batch(ranges, local_access, {.workers = 2});
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_EQ(cache.statistics().opens, 30U);
  if (!TypeParam::touches_memory) return;
  ranges.push_back(this->memory.pages(66, 1));
  EXPECT_EQ(cache.acquire_batch(ranges).error().code, errc::invalid_range);
}

TYPED_TEST_P(registrar_suite, R25_limits_are_consistent_and_enforced) {
  const auto limits = this->rig.make().limits();
  EXPECT_EQ(limits.granularity & (limits.granularity - 1), 0U);
  EXPECT_TRUE(contains_all(limits.supported, local_access));
  if (limits.max_bytes == SIZE_MAX) return;
  typename TestFixture::cache_type cache(this->rig.make(), this->keeping());
  EXPECT_EQ(cache.acquire(this->memory.at(0), limits.max_bytes + 1).error().code, errc::too_large);
}

REGISTER_TYPED_TEST_SUITE_P(registrar_suite, opens_and_closes, R22_overlapping_nested_and_equal_ranges_coexist,
                            unmapped_memory_is_refused_as_invalid_range_without_leaks, works_on_many_threads,
                            R20_R21_cache_hits_inside_a_registration,
                            R21_the_kernel_counts_one_registration_and_none_after_flush,
                            refuses_bad_requests_without_a_cache, moved_from_registrar_does_not_crash,
                            R12_evicts_under_a_budget, R26_registers_batches_through_a_cache,
                            R25_limits_are_consistent_and_enforced);

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
// Registrations of local memory: R20-R24, R27, R28, R33, R36, R49.
#include "support/fixtures/local_fixture.hpp"

#include <array>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace pinfold::testing::local_cache_test {
namespace {

using namespace std::chrono_literals;

constexpr access_flags remote = access_flags::remote_read | access_flags::local_read;

TEST(local_cache, R20_request_inside_an_entry_is_a_hit) {
  local_fixture f;
  f.touch(0x1000, 0x9000);
  f.touch(0x1000, 0x9000);
  f.touch(0x2345, 0x2346);
  f.touch(0x8fff, 0x9000);
  f.touch(0x3000, 0x4000, access_flags::local_read);
  EXPECT_EQ(f.device->opened, 1U);
  EXPECT_EQ(f.cache.statistics().hits, 4U);
}

TEST(local_cache, R20_lease_gives_the_callers_own_address) {
  local_fixture f;
  std::vector<int> numbers(100);
  auto lease = f.cache.acquire(numbers);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->data(), numbers.data());
  EXPECT_FALSE(f.cache.find(numbers.data(), 401));
}

TEST(local_cache, R48_find_needs_the_access_that_acquire_needs) {
  local_fixture f;
  std::vector<int> numbers(100);
  const auto* const read_only = numbers.data();
  ASSERT_TRUE(f.cache.acquire(read_only, 400));
  EXPECT_TRUE(f.cache.find(read_only, 400));
  EXPECT_FALSE(f.cache.find(numbers.data(), 400)) << "registered for reading only";
  ASSERT_TRUE(f.cache.acquire(numbers.data(), 400));
  EXPECT_TRUE(f.cache.find(numbers.data(), 400));
  EXPECT_FALSE(f.cache.find(read_only, 400, access_flags::remote_write)) << "access to write memory that is const";
}

TEST(local_cache, R21_nested_leases_hold_the_outer_registration) {
  local_fixture f;
  auto outer = f.acquire(0x1000, 0x4000);
  auto inner = f.acquire(0x2000, 0x3000);
  ASSERT_TRUE(outer && inner);
  EXPECT_EQ(f.device->opened, 1U);
  EXPECT_TRUE(outer->release());
  EXPECT_EQ(f.cache.dump()[0].leases, 1U) << "the inner user still holds it";
  EXPECT_TRUE(inner->release());
  EXPECT_EQ(f.device->open_count(), 1U) << "idle, not closed";
  f.expect_sound();
}

TEST(local_cache, R22_partial_overlap_is_registered_exactly_and_both_stay) {
  local_fixture f;
  f.touch(0x1000, 0x3000);
  f.touch(0x2000, 0x4000);
  EXPECT_EQ(f.device->opened, 2U);
  EXPECT_EQ(f.cache.statistics().misses_extent, 1U);
  EXPECT_TRUE(f.cached(0x1000, 0x3000));
  EXPECT_TRUE(f.cached(0x2000, 0x4000));
  EXPECT_FALSE(f.cached(0x1000, 0x4000)) << "never merged";
}

TEST(local_cache, R22_larger_request_replaces_the_entries_that_it_covers) {
  local_fixture f;
  f.touch(0x1000, 0x2000);
  auto used = f.acquire(0x2000, 0x3000);
  f.touch(0x1000, 0x4000);
  EXPECT_FALSE(used->stale()) << "not needed any more is not stale";
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 2U) << "the new one, and the one in use";
  EXPECT_TRUE(used->release());
  EXPECT_EQ(f.device->open_count(), 1U);
  f.expect_sound();
}

TEST(local_cache, R23_missing_rights_are_registered_as_a_union) {
  local_fixture f;
  f.touch(0x1000, 0x2000, access_flags::local_read);
  f.touch(0x1000, 0x2000, access_flags::local_write);
  EXPECT_EQ(f.cache.statistics().misses_access, 1U);
  EXPECT_TRUE(f.cached(0x1000, 0x2000, local_access));
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 1U) << "the lesser entry has drained";
}

TEST(local_cache, R23_remote_right_is_added_only_inside_the_entry_that_has_it) {
  local_fixture f;
  f.touch(0x1000, 0x2000, remote);
  f.touch(0x0800, 0x2800, access_flags::local_write);  // reaches outside, to bytes that were not opened to peers
  for (const auto& [key, one] : f.device->now())
    EXPECT_FALSE(any_remote(one.access) && one.memory != (range{0x1000, 0x2000}));
  f.touch(0x1400, 0x1800, access_flags::local_write | access_flags::remote_write);
  const auto now = f.device->now();
  const auto& made = now.rbegin()->second;
  EXPECT_EQ(made.memory, (range{0x1400, 0x1800}));
  EXPECT_TRUE(contains_all(made.access, remote | access_flags::remote_write));
}

TEST(local_cache, R23_refused_union_falls_back_to_the_requested_rights) {
  local_fixture f;
  f.touch(0x1000, 0x2000, access_flags::local_read);
  f.device->fail_opens([](const range&, access_flags access) -> std::optional<error> {
    if (!contains_all(access, local_access)) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 22, "no such combination"};
  });
  f.touch(0x1000, 0x2000, access_flags::local_write);
  EXPECT_EQ(f.device->open_count(), 2U) << "the old entry stays";
  f.device->fail_opens([](const range&, access_flags) {
    return std::optional(error{errc::driver_error, native_kind::posix, 22, "nothing at all"});
  });
  EXPECT_EQ(f.acquire(0x1000, 0x2000, access_flags::remote_read).error().native, 22);
  EXPECT_TRUE(f.cached(0x1000, 0x2000, access_flags::local_read));
  f.expect_sound();
}

TEST(local_cache, R24_ranges_with_local_rights_are_rounded_out_and_remote_ones_are_exact) {
  local_fixture f;
  f.device->limits.granularity = 4096;
  f.touch(0x1010, 0x1020);
  EXPECT_EQ(f.device->now().rbegin()->second.memory, (range{0x1000, 0x2000}));
  f.touch(0x1800, 0x1900);
  EXPECT_EQ(f.device->opened, 1U) << "the same page";
  f.touch(0x5010, 0x5020, remote);
  EXPECT_EQ(f.device->now().rbegin()->second.memory, (range{0x5010, 0x5020})) << "no neighbour's byte for a peer";
}

TEST(local_cache, R24_union_with_a_remote_right_is_registered_exactly) {
  local_fixture f;
  f.device->limits.granularity = 4096;
  f.touch(0x1010, 0x1020, access_flags::remote_read);
  f.touch(0x1012, 0x1018, access_flags::local_write);
  EXPECT_EQ(f.device->now().rbegin()->second.memory, (range{0x1012, 0x1018}));
}

TEST(local_cache, R25_request_above_the_registrars_limit_is_too_large) {
  local_fixture f;
  f.device->limits.max_bytes = 0x4000;
  EXPECT_EQ(f.acquire(0x1000, 0x5001).error().code, errc::too_large);
  EXPECT_EQ(f.device->calls, 0U);
  f.touch(0x1000, 0x5000);
}

TEST(local_cache, R27_persistent_entries_stay_until_unpersist) {
  local_fixture f({.max_count = 2});
  {
    auto kept = f.acquire(0x1000, 0x2000, local_access, {.persistent = true});
  }
  for (std::uintptr_t i = 2; i < 20; ++i) f.touch(i * 0x10000, i * 0x10000 + 64);
  EXPECT_TRUE(f.cached(0x1000, 0x2000)) << "not evicted";
  EXPECT_TRUE(f.cache.flush());
  EXPECT_TRUE(f.cached(0x1000, 0x2000)) << "nor flushed";
  f.touch(0x0, 0x3000);
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
  f.cache.unpersist(reinterpret_cast<void*>(0x1000), 1);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

TEST(local_cache, R27_persistent_entry_is_still_invalidated) {
  local_fixture f;
  {
    auto kept = f.acquire(0x1000, 0x2000, local_access, {.persistent = true});
  }
  f.invalidate(0x1800, 0x1801);
  EXPECT_FALSE(f.cached(0x1000, 0x2000));
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(local_cache, R27_persistent_entry_is_closed_with_the_cache) {
  auto device = std::make_shared<fake_device>();
  {
    local_fixture f({}, device);
    auto kept = f.acquire(0x1000, 0x2000, local_access, {.persistent = true});
  }
  EXPECT_EQ(device->open_count(), 0U);
}

TEST(local_cache, R27_bypass_is_for_its_lease_only) {
  local_fixture f({.max_count = 1});
  auto counted = f.acquire(0x1000, 0x2000);
  auto beside = f.acquire(0x1000, 0x2000, local_access, {.bypass = true});
  ASSERT_TRUE(beside) << "outside the budget";
  EXPECT_NE(beside->registration().key, counted->registration().key);
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 0x1000U);
  f.invalidate(0x1000, 0x1001);
  EXPECT_TRUE(beside->stale()) << "the holder of the lease is notified all the same";
  EXPECT_EQ(f.cache.statistics().invalidated_while_leased, 2U);
  EXPECT_TRUE(beside->release());
  EXPECT_EQ(f.device->open_count(), 1U);
  EXPECT_EQ(f.cache.statistics().bypass_bytes, 0U);
  f.expect_sound();
}

TEST(local_cache, R28_lack_of_resources_evicts_one_entry_and_retries) {
  local_fixture f;
  f.device->capacity = 3;
  for (std::uintptr_t i = 1; i <= 10; ++i) f.touch(i * 0x10000, i * 0x10000 + 64);
  EXPECT_EQ(f.cache.statistics().evicted, 7U);
  EXPECT_EQ(f.device->open_count(), 3U);
  f.expect_sound();
}

TEST(local_cache, const_memory_is_registered_for_reading) {
  local_fixture f;
  const std::array<char, 64> text{};
  std::array<char, 64> buffer{};
  const auto access_of = [&](const auto& lease) { return f.device->now().at(lease->registration().key).access; };
  const auto sent = f.cache.acquire(text);
  ASSERT_TRUE(sent);
  EXPECT_EQ(access_of(sent), access_flags::local_read);
  EXPECT_EQ(access_of(f.cache.acquire(std::span<const char>(buffer))), access_flags::local_read);
  EXPECT_TRUE(contains_all(access_of(f.cache.acquire(buffer)), local_access));
  EXPECT_TRUE(contains_all(access_of(f.cache.acquire(std::span(buffer))), local_access));
  EXPECT_TRUE(f.cache.acquire(text, access_flags::remote_read));
  for (const auto writes : {access_flags::local_write, access_flags::remote_write, access_flags::remote_atomic}) {
    EXPECT_EQ(f.cache.acquire(text, writes | access_flags::local_read).error().code, errc::invalid_argument);
    const auto chunks = f.cache.acquire_chunks(static_cast<const void*>(text.data()), text.size(), writes);
    EXPECT_EQ(chunks.error().code, errc::invalid_argument);
  }
  static_assert(std::is_same_v<decltype(sent->data()), const void*>);
  EXPECT_EQ(sent->data(), text.data());
}

TEST(local_cache, is_leased_reports_leased_memory) {
  local_fixture f;
  f.touch(0x1000, 0x3000);
  EXPECT_FALSE(f.cache.is_leased({0x1000, 0x3000}));
  const auto held = f.acquire(0x2000, 0x3000);
  EXPECT_TRUE(f.cache.is_leased({0x2fff, 0x9000}));
  EXPECT_FALSE(f.cache.is_leased({0x3000, 0x9000}));
}

TEST(local_cache, R33_cache_without_a_monitor_keeps_no_registration) {
  auto device = std::make_shared<fake_device>();
  pinfold::cache cache(fake_registrar{device}, {.monitor = monitor_choice::none});
  for (int i = 0; i < 3; ++i) {
    auto lease = cache.acquire(reinterpret_cast<void*>(0x1000), 64);
    ASSERT_TRUE(lease);
    EXPECT_EQ(device->open_count(), 1U);
  }
  EXPECT_EQ(device->opened, 3U);
  EXPECT_EQ(device->open_count(), 0U);
  EXPECT_EQ(cache.statistics().unmonitored, 3U) << "and the counter says why";
  EXPECT_EQ(cache.monitors(), "none (switched off)");
}

TEST(local_cache, R33_budget_holds_without_a_monitor) {
  auto device = std::make_shared<fake_device>();
  pinfold::cache cache(fake_registrar{device}, {.max_count = 1, .monitor = monitor_choice::none});
  auto first = cache.acquire(reinterpret_cast<void*>(0x1000), 64);
  EXPECT_EQ(cache.acquire(reinterpret_cast<void*>(0x2000), 64).error().code, errc::over_budget);
}

TEST(local_cache, R36_invalidated_memory_is_registered_again) {
  local_fixture f;
  f.touch(0x1000, 0x9000);
  f.touch(0x20000, 0x21000);
  f.invalidate(0x8fff, 0x9000);
  EXPECT_EQ(f.device->open_count(), 2U) << "only marked";
  f.touch(0x2000, 0x3000);
  EXPECT_EQ(f.device->opened, 3U);
  EXPECT_TRUE(f.cached(0x20000, 0x21000)) << "what was not touched is still there";
}

TEST(local_cache, invalidation_during_an_open_repeats_the_open) {
  local_fixture f;
  std::atomic<bool> invalidated{false};
  f.device->on_open = [&] {
    while (!invalidated) std::this_thread::sleep_for(1ms);
  };
  std::thread opener([&] {
    auto lease = f.acquire(0x1000, 0x2000);
    ASSERT_TRUE(lease);
    EXPECT_FALSE(lease->stale()) << "registered after the memory was replaced";
  });
  while (f.device->calls == 0) std::this_thread::yield();
  f.invalidate(0x1000, 0x1001);
  invalidated = true;
  opener.join();
  EXPECT_EQ(f.device->opened, 2U);
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
  EXPECT_EQ(f.device->open_count(), 1U);
  f.expect_sound();
}

TEST(local_cache, invalidation_during_every_open_gives_an_unindexed_registration) {
  local_fixture f;
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    f.invalidate(0x1000, 0x1001);  // during every registration
    return std::nullopt;
  });
  auto lease = f.acquire(0x1000, 0x2000);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->stale());
  EXPECT_EQ(f.device->opened, 4U) << "three more attempts, then it is handed out";
  f.device->fail_opens(nullptr);
  EXPECT_FALSE(f.cached(0x1000, 0x2000));
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(f.device->open_count(), 0U);
  f.expect_sound();
}

TEST(local_cache, bad_input_changes_nothing) {
  local_fixture f;
  f.device->limits.supported = local_access;
  EXPECT_EQ(f.acquire(0x1000, 0x1000).error().code, errc::invalid_range);
  EXPECT_EQ(f.cache.acquire(reinterpret_cast<void*>(UINTPTR_MAX - 5), 10).error().code, errc::invalid_range);
  EXPECT_EQ(f.acquire(0x1000, 0x2000, access_flags::none).error().code, errc::invalid_argument);
  EXPECT_EQ(f.acquire(0x1000, 0x2000, access_flags::remote_write).error().code, errc::unsupported);
  EXPECT_EQ(f.device->calls, 0U);
}

}  // namespace
}  // namespace pinfold::testing::local_cache_test

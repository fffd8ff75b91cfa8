// SPDX-License-Identifier: BSD-3-Clause
// The C interface over local memory.
#include "index/record_page.hpp"
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/monitors/announce.hpp>
#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::c_cache_test {
namespace {

constexpr pinfold_batch_options one_worker{sizeof(pinfold_batch_options), 1, nullptr};

TEST(c_cache, second_acquire_hits) {
  c_fixture f;
  const auto first = f.acquire(0x1000, 0x3000);
  const auto second = f.acquire(0x2000, 0x2800);
  ASSERT_TRUE(first.pin != 0 && second.pin != 0);
  EXPECT_EQ(second.data, reinterpret_cast<void*>(0x2000));
  EXPECT_EQ(pinfold_registration_of(first), pinfold_registration_of(second));
  const auto* made = static_cast<const pinfold_registration*>(pinfold_registration_of(first));
  EXPECT_EQ(made->words[3], ~made->words[0]) << "all four words are kept";
  EXPECT_EQ(pinfold_release(first), PINFOLD_OK);
  EXPECT_EQ(pinfold_release(second), PINFOLD_OK);
  EXPECT_EQ(f.counters().hits, 1U);
  EXPECT_EQ(f.counters().misses, 1U);
  EXPECT_EQ(f.device.device->open_count(), 1U) << "kept";
}

TEST(c_cache, restore_registers_again_what_quiesce_closed) {
  c_fixture f;
  for (std::uintptr_t at = 0x10000; at < 0x20000; at += 0x1000)
    EXPECT_EQ(pinfold_release(f.acquire(at, at + 0x1000)), PINFOLD_OK);
  ASSERT_EQ(pinfold_quiesce(f.cache), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 0U);
  f.device.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != 0x15000) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, EIO, "the device refuses"};
  });
  pinfold_restoration* restoration = nullptr;
  ASSERT_EQ(pinfold_restore(f.cache, 2, &restoration), PINFOLD_OK);
  EXPECT_EQ(pinfold_restoration_wait(restoration, UINT64_MAX), PINFOLD_OK);
  pinfold_restore_progress now{};
  EXPECT_EQ(pinfold_restoration_progress(restoration, &now), PINFOLD_E_INVALID_ARGUMENT) << "no size";
  now.size = sizeof now;
  EXPECT_EQ(pinfold_restoration_progress(restoration, &now), PINFOLD_E_DRIVER_ERROR);
  EXPECT_EQ(pinfold_last_error()->native, EIO);
  EXPECT_EQ(now.total, 16U);
  EXPECT_EQ(now.restored, 15U);
  EXPECT_EQ(now.failed, 1U);
  EXPECT_EQ(now.bytes, 15U * 0x1000);
  EXPECT_EQ(f.device.device->open_count(), 15U);
  EXPECT_EQ(pinfold_end_restoration(restoration), PINFOLD_OK);
  EXPECT_EQ(pinfold_end_restoration(nullptr), PINFOLD_OK);
  f.device.device->fail_opens(nullptr);
}

TEST(c_cache, a_restoration_can_be_waited_for_with_a_limit_and_outlives_its_cache) {
  auto options = c_options();
  options.drain_timeout_ms = 60'000;
  c_fixture f(options);
  for (std::uintptr_t at = 0x10000; at < 0x20000; at += 0x1000)
    EXPECT_EQ(pinfold_release(f.acquire(at, at + 0x1000)), PINFOLD_OK);
  ASSERT_EQ(pinfold_quiesce(f.cache), PINFOLD_OK);
  f.device.device->call_takes = std::chrono::milliseconds(20);
  std::atomic<bool> may_open{false};
  f.device.in_open = [&] {
    while (!may_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  pinfold_restoration* restoration = nullptr;
  ASSERT_EQ(pinfold_restore(f.cache, 1, &restoration), PINFOLD_OK);
  EXPECT_EQ(pinfold_restoration_wait(restoration, 1), PINFOLD_E_TIMED_OUT);
  may_open = true;
  EXPECT_EQ(pinfold_destroy(std::exchange(f.cache, nullptr)), PINFOLD_OK);
  EXPECT_EQ(pinfold_restoration_wait(restoration, 60000), PINFOLD_OK);
  EXPECT_EQ(pinfold_end_restoration(restoration), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 0U);
}

TEST(c_cache, bad_restorations_are_refused) {
  c_fixture f;
  pinfold_restoration* restoration = nullptr;
  EXPECT_EQ(pinfold_restore(nullptr, 1, &restoration), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_restore(f.cache, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(restoration, nullptr);
  EXPECT_EQ(pinfold_restoration_wait(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_restoration_progress(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
}

TEST(c_cache, lease_tells_what_it_covers) {
  c_fixture f;
  const auto lease = f.acquire(0x1000, 0x3000);
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  EXPECT_EQ(pinfold_covered(lease, &base, &bytes), PINFOLD_OK);
  EXPECT_EQ(base, 0x1000U);
  EXPECT_EQ(bytes, 0x2000U);
  EXPECT_EQ(pinfold_is_stale(lease), 0);
  EXPECT_EQ(pinfold_invalidate(f.cache, lease.data, 1), PINFOLD_OK);
  EXPECT_EQ(pinfold_is_stale(lease), 1);
  EXPECT_EQ(pinfold_is_closed(lease), 0);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  EXPECT_FALSE(f.cached(0x1000, 0x3000));
}

TEST(c_cache, failed_open_gives_code_native_code_and_sentence) {
  c_fixture f;
  f.device.device->fail_opens([](const range&, access_flags) {
    return error{errc::not_permitted, native_kind::posix, EPERM, "the device says no"};
  });
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
  const auto& failure = *pinfold_last_error();
  EXPECT_EQ(failure.code, PINFOLD_E_NOT_PERMITTED);
  EXPECT_EQ(failure.native_kind, PINFOLD_NATIVE_POSIX);
  EXPECT_EQ(failure.native, EPERM);
  EXPECT_STREQ(failure.message, "the device says no");
  std::array<char, 200> line{};
  EXPECT_LT(pinfold_describe_error(&failure, line.data(), line.size()), line.size());
  EXPECT_NE(std::strstr(line.data(), "not_permitted"), nullptr);
  EXPECT_NE(std::strstr(line.data(), std::strerror(EPERM)), nullptr) << line.data();
}

pinfold_options not_retaining() {
  auto options = c_options();
  options.flags = PINFOLD_NO_RETAIN;
  return options;
}

TEST(c_cache, R47_failed_close_reaches_the_release_that_closes) {
  c_fixture f(not_retaining());
  const auto lease = f.acquire(0x1000, 0x2000);
  f.device.device->fail_closes(1);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_E_DRIVER_ERROR);
  EXPECT_EQ(pinfold_last_error()->native, 5);
  EXPECT_EQ(f.counters().quarantined, 1U);
  EXPECT_EQ(pinfold_progress(f.cache), PINFOLD_OK) << "the retry succeeds";
}

TEST(c_cache, argument_reaches_the_open_of_the_call) {
  c_fixture f;
  int token = 0;
  pinfold_acquire_options how{};
  how.size = sizeof how;
  how.argument = &token;
  EXPECT_EQ(pinfold_release(pinfold_acquire_with(f.cache, &token, sizeof token, c_local_access, &how)), PINFOLD_OK);
  EXPECT_EQ(f.device.last_argument, &token);
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_EQ(f.device.last_argument, nullptr);
}

TEST(c_cache, R27_bypass_and_persistent_are_options_of_a_request) {
  c_fixture f;
  pinfold_acquire_options how{};
  how.size = sizeof how;
  how.flags = PINFOLD_BYPASS;
  EXPECT_EQ(pinfold_release(pinfold_acquire_with(f.cache, reinterpret_cast<void*>(0x1000), 1, c_local_access, &how)),
            PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 0U);
  how.flags = PINFOLD_PERSISTENT;
  EXPECT_EQ(pinfold_release(pinfold_acquire_with(f.cache, reinterpret_cast<void*>(0x1000), 1, c_local_access, &how)),
            PINFOLD_OK);
  EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_OK);
  EXPECT_TRUE(f.cached(0x1000, 0x1001));
  EXPECT_EQ(pinfold_unpersist(f.cache, reinterpret_cast<void*>(0x1000), 1), PINFOLD_OK);
  EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_OK);
  EXPECT_FALSE(f.cached(0x1000, 0x1001));
}

TEST(c_cache, R61_caller_gives_back_the_registration_instead_of_the_lease) {
  c_fixture f;
  const void* first = pinfold_detach(f.acquire(0x1000, 0x2000));
  const void* second = pinfold_detach(f.acquire(0x1000, 0x2000));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first, second);
  EXPECT_EQ(f.counters().leases_now, 2U);
  EXPECT_EQ(pinfold_release_registration(first), PINFOLD_OK);
  EXPECT_EQ(pinfold_quiesce(f.cache), PINFOLD_E_IN_USE_CONFLICT) << "the other one is out";
  std::jthread([&] { EXPECT_EQ(pinfold_release_registration(second), PINFOLD_OK); }).join();
  EXPECT_EQ(f.counters().leases_now, 0U);
  EXPECT_EQ(pinfold_quiesce(f.cache), PINFOLD_OK);
}

TEST(c_cache, R61_last_released_registration_is_closed_when_it_is_not_kept) {
  c_fixture f(not_retaining());
  const auto lease = f.acquire(0x1000, 0x2000);
  const auto shared = pinfold_share(lease);
  const void* detached = pinfold_detach(lease);
  EXPECT_EQ(pinfold_release(shared), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 1U);
  EXPECT_EQ(pinfold_release_registration(detached), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 0U);
}

TEST(c_cache, shared_lease_keeps_the_registration_alone) {
  c_fixture f(not_retaining());
  const auto lease = f.acquire(0x1000, 0x2000);
  const auto shared = pinfold_share(lease);
  EXPECT_EQ(shared.data, lease.data);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 1U);
  EXPECT_EQ(pinfold_release(shared), PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 0U);
}

TEST(c_cache, thread_detaches_its_own_lease_without_the_engines_mutex) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  const auto hit = f.acquire(0x1000, 0x2000);
  auto* control = index::record_page::of(pinfold_registration_of(hit)).owner.load();
  const void* registration = nullptr;
  {
    const os::scoped_lock guard(control->guard);
    registration = pinfold_detach(hit);  // would wait for ever
  }
  EXPECT_EQ(f.counters().leases_now, 1U);
  EXPECT_EQ(pinfold_release_registration(registration), PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

// A thread that sums an entry's pins under the mutex must not miss a pin that moves from one place to another
// meanwhile.
TEST(c_cache, pin_moves_to_the_entry_only_under_the_engines_mutex) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  const auto hit = f.acquire(0x1000, 0x2000);
  auto* control = index::record_page::of(pinfold_registration_of(hit)).owner.load();
  std::atomic<bool> moved{false};
  std::jthread mover;
  {
    const os::scoped_lock guard(control->guard);
    mover = std::jthread([&] {
      const void* registration = pinfold_detach(hit);
      moved = true;
      EXPECT_EQ(pinfold_release_registration(registration), PINFOLD_OK);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(moved);
  }
  mover.join();
  EXPECT_TRUE(moved);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_cache, R26_batch_gives_every_range_a_lease_of_its_own) {
  c_fixture f;
  const std::array<pinfold_range, 4> ranges{{{0x1000, 0x1000}, {0x1000, 0x1000}, {0x8000, 0x1000}, {0x1800, 0x100}}};
  std::array<pinfold_lease, 4> leases{};
  ASSERT_EQ(pinfold_acquire_batch(f.cache, ranges.data(), ranges.size(), c_local_access, nullptr, leases.data()),
            PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 2U) << "merged";
  EXPECT_EQ(leases[3].data, reinterpret_cast<void*>(0x1800));
  EXPECT_EQ(pinfold_registration_of(leases[0]), pinfold_registration_of(leases[3]));
  EXPECT_EQ(f.counters().leases_now, 4U);
  EXPECT_EQ(pinfold_release_batch(leases.data(), leases.size()), PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_cache, R26_batch_that_fails_holds_no_lease) {
  c_fixture f;
  f.device.device->fail_opens([](const range& where, access_flags) -> std::optional<error> {
    if (where.begin < 0x8000) return std::nullopt;
    return error{errc::not_permitted, native_kind::none, 0, "no"};
  });
  const std::array<pinfold_range, 2> ranges{{{0x1000, 0x1000}, {0x8000, 0x1000}}};
  std::array<pinfold_lease, 2> leases{};
  EXPECT_EQ(pinfold_acquire_batch(f.cache, ranges.data(), 2, c_local_access, &one_worker, leases.data()),
            PINFOLD_E_NOT_PERMITTED);
  EXPECT_EQ(leases[0].pin, 0U);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_cache, R26_open_many_opens_a_batch_with_one_call) {
  c_device on;
  auto table = on.table();
  table.open_many = c_device::open_many;
  c_fixture f(c_options(), table);
  std::vector<pinfold_range> ranges;
  for (std::uint64_t i = 0; i < 64; ++i) ranges.push_back({0x100000 + i * 0x10000, 0x1000});
  std::vector<pinfold_lease> leases(ranges.size());
  ASSERT_EQ(pinfold_acquire_batch(f.cache, ranges.data(), ranges.size(), c_local_access, &one_worker, leases.data()),
            PINFOLD_OK);
  EXPECT_EQ(f.device.device->open_count(), 64U);
  EXPECT_LE(f.device.device->calls, 2U);
  EXPECT_EQ(pinfold_release_batch(leases.data(), leases.size()), PINFOLD_OK);
}

TEST(c_cache, R25_chunks_come_in_order_and_end_with_closed) {
  c_fixture f;
  pinfold_chunks* chunks = nullptr;
  pinfold_chunk_options how{};
  how.size = sizeof how;
  how.chunk_bytes = 0x2000;
  how.argument = &chunks;
  ASSERT_EQ(pinfold_acquire_chunks(f.cache, reinterpret_cast<void*>(0x10000), 0x5000, c_local_access, &how, &chunks),
            PINFOLD_OK);
  std::uint64_t next = 0x10000;
  pinfold_range where{};
  pinfold_lease lease{};
  while (pinfold_next_chunk(chunks, &where, &lease) == PINFOLD_OK) {
    EXPECT_EQ(where.base, next);
    next += where.bytes;
    EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  }
  EXPECT_EQ(next, 0x15000U);
  EXPECT_EQ(f.device.last_argument, &chunks);
  EXPECT_EQ(last_code(), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_next_chunk(chunks, &where, &lease), PINFOLD_E_CLOSED);
  pinfold_end_chunks(chunks);
}

TEST(c_cache, evict_closes_as_many_as_asked_for) {
  c_fixture f;
  for (std::uintptr_t i = 1; i <= 8; ++i)
    EXPECT_EQ(pinfold_release(f.acquire(i * 0x10000, i * 0x10000 + 1)), PINFOLD_OK);
  const auto held = f.acquire(0x10000, 0x10001);
  EXPECT_EQ(pinfold_evict(f.cache, 3), 3U);
  EXPECT_EQ(f.device.device->open_count(), 5U);
  EXPECT_EQ(pinfold_evict(f.cache, 100), 4U) << "one has a lease";
  EXPECT_EQ(f.counters().evicted, 7U);
  EXPECT_EQ(pinfold_release(held), PINFOLD_OK);
}

TEST(c_cache, announced_memory_is_not_found_again) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  pinfold_announce_gone(reinterpret_cast<void*>(0x1800), 1);
  EXPECT_FALSE(f.cached(0x1000, 0x2000));
}

TEST(c_cache, R58_still_is_decides_on_every_hit) {
  c_device on;
  auto table = on.table();
  table.still_is = c_device::still_is;
  c_fixture f(c_options(), table);
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
  f.device.still = 0;
  EXPECT_FALSE(f.cached(0x1000, 0x2000));
  EXPECT_EQ(f.device.device->open_count(), 0U) << "the registration of memory that is gone is closed";
  EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U) << "the memory changes during every attempt";
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(f.counters().leases_now, 0U);
  f.device.still = 1;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
}

TEST(c_cache, finished_is_called_once_when_the_cache_has_ended) {
  c_device device;
  const auto table = device.table();
  const auto options = c_options();
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create(&table, &device, &options, &cache), PINFOLD_OK);
  EXPECT_EQ(device.finished, 0);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  EXPECT_EQ(device.finished, 1);
}

TEST(c_cache, dump_and_description_show_entries_and_counters) {
  c_fixture f;
  const auto lease = f.acquire(0x1000, 0x3000);
  std::vector<pinfold_entry> all;
  const auto keep = [](void* self, const pinfold_entry* one) {
    static_cast<std::vector<pinfold_entry>*>(self)->push_back(*one);
    return 0;
  };
  EXPECT_EQ(pinfold_dump(f.cache, keep, &all), PINFOLD_OK);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].base, 0x1000U);
  EXPECT_EQ(all[0].leases, 1U);
  EXPECT_STREQ(all[0].kind, "fake");
  EXPECT_STREQ(all[0].state, "live");
  EXPECT_EQ(pinfold_dump(f.cache, [](void*, const pinfold_entry*) { return 7; }, nullptr), 7);
  std::array<char, 8> little{};
  const auto length = pinfold_describe(f.cache, little.data(), little.size());
  EXPECT_GT(length, 100U);
  EXPECT_STREQ(little.data(), "hits=0 ");
  EXPECT_EQ(pinfold_monitors(f.cache, nullptr, 0), std::strlen("manual"));
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
}

TEST(c_cache, sink_receives_events_with_the_drivers_error) {
  struct received {
    int failures = 0;
    int native = 0;
    std::string text;
  } all;
  auto options = c_options();
  options.flags = PINFOLD_STATISTICS_AT_EXIT;
  options.sink = [](void* self, const pinfold_event* what) {
    auto& to = *static_cast<received*>(self);
    if (what->kind == PINFOLD_EVENT_CLOSE_FAILED) {
      ++to.failures;
      to.native = what->cause->native;
      EXPECT_EQ(what->level, PINFOLD_FAILURE);
      EXPECT_STREQ(pinfold_event_name(what->kind), "close_failed");
    }
    if (what->kind == PINFOLD_EVENT_STATISTICS) to.text = what->text;
  };
  options.sink_self = &all;
  {
    c_fixture f(options);
    EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
    f.device.device->fail_closes(1);
    EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_E_DRIVER_ERROR);
  }
  EXPECT_EQ(all.failures, 1);
  EXPECT_EQ(all.native, 5);
  EXPECT_NE(all.text.find("failed_closes=1"), std::string::npos) << all.text;
}

TEST(c_cache, mlock_cache_registers_real_memory) {
  const auto options = c_options();
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_mlock(&options, &cache), PINFOLD_OK);
  std::vector<char> memory(10'000);
  const auto lease = pinfold_acquire(cache, memory.data(), memory.size(), c_local_access);
  ASSERT_NE(lease.pin, 0U) << pinfold_last_error()->message;
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

}  // namespace
}  // namespace pinfold::testing::c_cache_test

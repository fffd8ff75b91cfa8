// SPDX-License-Identifier: BSD-3-Clause
// quiesce and restore: everything deregistered, remembered, and registered again in the background.
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/processes/process_1.hpp"

#include "core/remembered.hpp"

#include <pinfold/monitors/announce.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::restore_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t base = 0x1000000;
constexpr std::uintptr_t step = 0x10000;

std::uintptr_t nth(std::uintptr_t number) { return base + number * step; }

struct restore : ::testing::Test {
  local_fixture<> f;
  void touch(std::uintptr_t count) {
    for (std::uintptr_t i = 0; i < count; ++i) f.touch(nth(i), nth(i) + 4096);
  }
  restore_progress restored(restore_options how = {}) {
    auto begun = f.cache.restore(std::move(how));
    EXPECT_TRUE(begun);
    begun->wait();
    EXPECT_TRUE(begun->done());
    return begun->progress();
  }
};

TEST_F(restore, R42_registers_again_what_quiesce_closed) {
  touch(100);
  ASSERT_TRUE(f.cache.quiesce());
  EXPECT_EQ(f.device->open_count(), 0U);
  const auto seen = restored();
  EXPECT_EQ(seen.total, 100U);
  EXPECT_EQ(seen.restored, 100U);
  EXPECT_EQ(seen.bytes, 100U * 4096);
  EXPECT_EQ(f.device->open_count(), 100U);
  const auto before = f.device->opened.load();
  touch(100);
  EXPECT_EQ(f.device->opened, before) << "every request is a hit";
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  f.expect_sound();
  EXPECT_EQ(restored().total, 0U) << "nothing is left to restore";
}

TEST_F(restore, the_most_used_come_first) {
  local_fixture<> exact({.entry_statistics = true});
  for (std::uintptr_t i = 0; i < 8; ++i)
    for (std::uintptr_t hits = 0; hits <= (i * 5) % 8; ++hits) exact.touch(nth(i), nth(i) + 64);
  ASSERT_TRUE(exact.cache.quiesce());
  std::vector<std::uintptr_t> order;
  exact.device->fail_opens([&](const range& memory, access_flags) -> std::optional<error> {
    order.push_back(((memory.begin - base) / step * 5) % 8);
    return std::nullopt;
  });
  auto begun = exact.cache.restore({.workers = 1});
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(order, (std::vector<std::uintptr_t>{7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST_F(restore, access_and_persistence_are_kept) {
  auto kept = f.acquire(nth(0), nth(0) + 64, local_access | access_flags::remote_read, {.persistent = true});
  ASSERT_TRUE(kept);
  kept->release();
  ASSERT_TRUE(f.cache.quiesce());
  EXPECT_EQ(f.device->open_count(), 0U) << "a checkpoint must find the driver empty";
  EXPECT_EQ(restored().restored, 1U);
  EXPECT_TRUE(f.cached(nth(0), nth(0) + 64, access_flags::remote_read));
  ASSERT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 1U) << "it is persistent";
}

TEST_F(restore, invalidated_memory_is_not_registered_again) {
  touch(10);
  ASSERT_TRUE(f.cache.quiesce());
  f.invalidate(nth(3) + 100, nth(3) + 101);
  f.invalidate(nth(5) - 1, nth(6) + 1);
  f.invalidate(nth(8) + 4096, nth(9));  // between two
  EXPECT_EQ(restored().restored, 7U);
  for (const std::uintptr_t gone : {3U, 5U, 6U}) EXPECT_FALSE(f.cached(nth(gone), nth(gone) + 4096)) << gone;
}

TEST_F(restore, the_total_does_not_count_what_was_invalidated) {
  touch(10);
  ASSERT_TRUE(f.cache.quiesce());
  f.invalidate(nth(3), nth(5));
  const auto seen = restored();
  EXPECT_EQ(seen.total, 8U);
  EXPECT_EQ(seen.restored, seen.total);
}

TEST_F(restore, R36_memory_that_is_invalidated_before_its_claim_is_not_registered) {
  touch(1);
  ASSERT_TRUE(f.cache.quiesce());
  // The driver's check comes after the worker took the registration from the list, and before it claims an entry.
  f.device->on_limits = [&] { f.invalidate(nth(0), nth(0) + 4096); };
  const auto seen = restored({.workers = 1});
  f.device->on_limits = nullptr;
  EXPECT_EQ(seen.restored, 0U);
  EXPECT_EQ(seen.failed, 1U);
  EXPECT_FALSE(f.cached(nth(0), nth(0) + 4096));
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, R36_memory_that_is_invalidated_during_its_open_is_not_kept) {
  touch(1);
  ASSERT_TRUE(f.cache.quiesce());
  bool first = true;
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    if (std::exchange(first, false)) f.cache.invalidate(reinterpret_cast<void*>(nth(0)), 4096);
    return std::nullopt;
  });
  static_cast<void>(restored({.workers = 1}));
  EXPECT_FALSE(f.cached(nth(0), nth(0) + 4096));
  f.device->fail_opens(nullptr);
  ASSERT_TRUE(f.cache.progress());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, R55_memory_that_is_announced_to_go_is_not_registered_again) {
  std::vector<char> memory(4 * 4096);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  f.touch(begin, begin + 4096);
  ASSERT_TRUE(f.cache.quiesce());
  announce_gone(memory.data(), 4096);  // posts an event, although nothing is registered
  const auto seen = restored({.workers = 1});
  EXPECT_EQ(seen.restored, 0U);
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, R36_memory_that_is_invalidated_while_quiesce_closes_is_not_registered_again) {
  touch(4);
  f.device->on_close = [&] { f.invalidate(nth(2), nth(2) + 4096); };
  ASSERT_TRUE(f.cache.quiesce());
  f.device->on_close = nullptr;
  EXPECT_EQ(restored().restored, 3U);
  EXPECT_FALSE(f.cached(nth(2), nth(2) + 4096));
}

// `invalidate` is between two shards while `quiesce` lists and closes what the second one has.
TEST(restore_shards, R68_memory_is_not_registered_again_whose_invalidation_has_not_come_to_its_shard) {
  constexpr std::uintptr_t cell = std::uintptr_t{2} << 20U;
  constexpr std::uintptr_t ranges = 64;
  std::vector<cache<fake_registrar>::lease> held;
  std::function<void()> between_shards;
  cache_options options{.shards = 8};
  options.sink = [&](const event&) {
    if (const auto now = std::exchange(between_shards, nullptr)) now();
  };
  local_fixture f(options);
  for (std::uintptr_t i = 0; i < ranges; ++i) held.push_back(*f.acquire(cell * (i + 1), cell * (i + 1) + 4096));
  between_shards = [&] {
    held.clear();
    EXPECT_TRUE(f.cache.quiesce());
  };
  f.invalidate(0, cell * (ranges + 2));
  EXPECT_FALSE(between_shards);
  auto begun = f.cache.restore();
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 0U);
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, R68_unpersist_while_quiesce_closes_concerns_the_restored_registration) {
  {
    auto kept = f.acquire(nth(0), nth(0) + 64, local_access, {.persistent = true});
    ASSERT_TRUE(kept);
  }
  f.device->on_close = [&] { f.cache.unpersist(reinterpret_cast<void*>(nth(0)), 64); };
  ASSERT_TRUE(f.cache.quiesce());
  f.device->on_close = nullptr;
  EXPECT_EQ(restored().restored, 1U);
  ASSERT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, what_is_not_persistent_any_more_is_restored_so) {
  for (const std::uintptr_t number : {0U, 1U}) {
    auto kept = f.acquire(nth(number), nth(number) + 64, local_access, {.persistent = true});
    ASSERT_TRUE(kept);
  }
  ASSERT_TRUE(f.cache.quiesce());
  f.cache.unpersist(reinterpret_cast<void*>(nth(0)), 1);
  EXPECT_EQ(restored().restored, 2U);
  ASSERT_TRUE(f.cache.flush());
  EXPECT_FALSE(f.cached(nth(0), nth(0) + 64));
  EXPECT_TRUE(f.cached(nth(1), nth(1) + 64));
}

TEST_F(restore, unpersist_of_other_memory_meanwhile_leaves_a_newer_registration_persistent) {
  {
    auto kept = f.acquire(nth(0), nth(8), local_access, {.persistent = true});
    ASSERT_TRUE(kept);
  }
  ASSERT_TRUE(f.cache.quiesce());
  f.device->on_open = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    auto newer = f.acquire(nth(1), nth(2), local_access | access_flags::remote_read, {.persistent = true});
    EXPECT_TRUE(newer);
    f.cache.unpersist(reinterpret_cast<void*>(nth(4)), 1);
  };
  EXPECT_EQ(restored({.workers = 1}).restored, 1U);
  f.device->on_open = nullptr;
  ASSERT_TRUE(f.cache.flush());
  EXPECT_TRUE(f.cached(nth(1), nth(2))) << "it is persistent";
  EXPECT_FALSE(f.cached(nth(4), nth(5)));
}

TEST_F(restore, unpersist_before_the_claim_concerns_the_restored_registration) {
  {
    auto kept = f.acquire(nth(0), nth(8), local_access, {.persistent = true});
    ASSERT_TRUE(kept);
  }
  ASSERT_TRUE(f.cache.quiesce());
  f.device->on_limits = [&] { f.cache.unpersist(reinterpret_cast<void*>(nth(4)), 1); };
  EXPECT_EQ(restored({.workers = 1}).restored, 1U);
  f.device->on_limits = nullptr;
  ASSERT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(restore, R12_workers_together_evict_nothing) {
  local_fixture<> small({.max_count = 64});
  for (std::uintptr_t i = 0; i < 64; ++i) small.touch(nth(i), nth(i) + 4096);
  ASSERT_TRUE(small.cache.quiesce());
  for (std::uintptr_t i = 100; i < 130; ++i) small.touch(nth(i), nth(i) + 4096);
  auto begun = small.cache.restore({.workers = 8});
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 34U);
  EXPECT_EQ(small.cache.statistics().evicted, 0U);
}

TEST_F(restore, R12_never_evicts_for_it) {
  local_fixture<> small({.max_bytes = 8 * 4096});
  for (std::uintptr_t i = 0; i < 8; ++i) small.touch(nth(i), nth(i) + 4096);
  ASSERT_TRUE(small.cache.quiesce());
  for (std::uintptr_t i = 100; i < 106; ++i) small.touch(nth(i), nth(i) + 4096);
  auto begun = small.cache.restore({.workers = 1});
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 2U);
  EXPECT_EQ(begun->progress().skipped, 6U);
  for (std::uintptr_t i = 100; i < 106; ++i) EXPECT_TRUE(small.cached(nth(i), nth(i) + 4096));
  EXPECT_EQ(small.cache.statistics().evicted, 0U);
}

TEST_F(restore, R12_never_evicts_when_the_driver_is_full) {
  touch(4);
  ASSERT_TRUE(f.cache.quiesce());
  for (std::uintptr_t i = 100; i < 103; ++i) f.touch(nth(i), nth(i) + 4096);
  f.device->capacity = 4;
  auto begun = f.cache.restore({.workers = 1});
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 1U);
  EXPECT_EQ(begun->progress().failed, 3U);
  EXPECT_EQ(begun->failure().error().code, errc::out_of_resources);
  for (std::uintptr_t i = 100; i < 103; ++i) EXPECT_TRUE(f.cached(nth(i), nth(i) + 4096));
  EXPECT_EQ(f.cache.statistics().evicted, 0U);
}

TEST_F(restore, R12_request_that_waits_for_a_restored_open_evicts_for_itself_when_the_driver_is_full) {
  touch(1);
  ASSERT_TRUE(f.cache.quiesce());
  f.touch(nth(100), nth(100) + 4096);
  f.device->capacity = 1;
  std::optional<std::jthread> request;
  std::atomic<bool> granted = false;
  f.device->on_open = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    request.emplace([&] { granted = f.acquire(nth(0), nth(0) + 4096).has_value(); });
    const auto joined = [&] {
      const auto open = f.cache.dump();
      return std::any_of(open.begin(), open.end(), [](auto& one) { return one.leases == 2; });
    };
    while (!joined()) std::this_thread::yield();
  };
  EXPECT_EQ(restored({.workers = 1}).failed, 1U);
  request.reset();
  EXPECT_TRUE(granted);
  EXPECT_EQ(f.cache.statistics().evicted, 1U);
}

TEST_F(restore, R47_the_first_failure_is_reported_and_the_rest_goes_on) {
  touch(10);
  ASSERT_TRUE(f.cache.quiesce());
  f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != nth(4)) return std::nullopt;
    return error{errc::invalid_range, native_kind::posix, 14, "not mapped any more"};
  });
  auto begun = f.cache.restore();
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().failed, 1U);
  EXPECT_EQ(begun->progress().restored, 9U);
  EXPECT_EQ(begun->failure().error().native, 14);
}

TEST_F(restore, what_a_cancelled_restoration_left_is_restored_by_the_next) {
  touch(50);
  ASSERT_TRUE(f.cache.quiesce());
  std::atomic<std::size_t> calls{0};
  std::atomic<bool> cancelled{false};
  f.device->on_open = [&] {
    if (++calls > 5) cancelled.wait(false);
  };
  {
    auto begun = f.cache.restore({.workers = 2});
    ASSERT_TRUE(begun);
    while (begun->progress().restored < 5) std::this_thread::yield();
    EXPECT_FALSE(begun->wait_for(0ms));
    begun->cancel();
    cancelled = true;
    cancelled.notify_all();
  }
  f.device->on_open = nullptr;
  const auto some = f.device->open_count();
  EXPECT_LT(some, 50U);
  EXPECT_EQ(restored().restored, 50U - some);
  EXPECT_EQ(f.device->open_count(), 50U);
}

TEST_F(restore, a_second_quiesce_adds_to_what_is_remembered) {
  touch(4);
  ASSERT_TRUE(f.cache.quiesce());
  f.touch(nth(0), nth(0) + 4096);
  f.touch(nth(9), nth(9) + 4096);
  ASSERT_TRUE(f.cache.quiesce());
  EXPECT_EQ(restored().restored, 5U);
}

TEST_F(restore, quiesce_waits_for_what_a_restoration_registers_and_loses_nothing) {
  touch(50);
  ASSERT_TRUE(f.cache.quiesce());
  for (int round = 0; round < 10; ++round) {
    f.device->call_takes = 1ms;
    auto begun = f.cache.restore({.workers = 4});
    ASSERT_TRUE(begun);
    while (begun->progress().restored < 5) std::this_thread::yield();
    const auto done = f.cache.quiesce();
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_EQ(f.device->open_count(), 0U) << "the driver is empty";
    begun->wait();
    EXPECT_EQ(f.device->open_count(), 0U) << "and stays so";
    f.device->call_takes = 0us;
    EXPECT_EQ(restored().restored, 50U) << "nothing was lost";
    ASSERT_TRUE(f.cache.quiesce());
  }
}

TEST_F(restore, threads_that_quiesce_at_once_keep_what_is_persistent) {
  constexpr std::uintptr_t count = 20;
  for (std::uintptr_t i = 0; i < count; ++i)
    ASSERT_TRUE(f.acquire(nth(i), nth(i) + 4096, local_access, {.persistent = true}));
  for (int round = 0; round < 50; ++round) {
    {
      std::jthread other([&] { EXPECT_TRUE(f.cache.quiesce()); });
      EXPECT_TRUE(f.cache.quiesce());
    }
    ASSERT_EQ(restored().restored, count);
    ASSERT_TRUE(f.cache.flush());
    ASSERT_EQ(f.device->open_count(), count) << "flush closes what is not persistent";
  }
}

TEST_F(restore, R42_the_cache_may_end_meanwhile) {
  for (int round = 0; round < 20; ++round) {
    auto device = std::make_shared<fake_device>();
    auto cache =
        std::make_unique<pinfold::cache<fake_registrar>>(fake_registrar(device), keeping({.drain_timeout = 60s}));
    for (std::uintptr_t i = 0; i < 50; ++i) ASSERT_TRUE(cache->acquire(reinterpret_cast<void*>(nth(i)), 4096));
    ASSERT_TRUE(cache->quiesce());
    device->call_takes = std::chrono::microseconds(50);
    auto begun = cache->restore({.workers = 3});
    ASSERT_TRUE(begun);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 100));
    cache.reset();
    EXPECT_EQ(device->open_count(), 0U);
    begun->wait();
    EXPECT_EQ(device->open_count(), 0U);
    EXPECT_EQ(device->misuses, 0U);
  }
}

TEST_F(restore, R37_a_child_does_not_wait) {
  touch(50);
  ASSERT_TRUE(f.cache.quiesce());
  f.device->call_takes = 10ms;
  auto begun = f.cache.restore({.workers = 2});
  ASSERT_TRUE(begun);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends it if it waits
    begun->wait();
    *begun = {};
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(restore_in_containers, R37_a_child_with_the_pid_of_its_parent_does_not_wait) {
  const auto status = in_process_1([] {
    local_fixture f;
    for (std::uintptr_t i = 0; i < 50; ++i) f.touch(nth(i), nth(i) + 4096);
    if (!f.cache.quiesce()) return -2;
    f.device->call_takes = 10ms;
    auto begun = f.cache.restore({.workers = 2});
    if (!begun) return -3;
    return in_another_process_1([&] {
      begun->wait();
      *begun = {};
      return 0;
    });
  });
  if (!status) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(*status, 0);
}

TEST_F(restore, the_callback_sees_every_step_and_may_throw) {
  touch(20);
  ASSERT_TRUE(f.cache.quiesce());
  std::size_t calls = 0;
  std::size_t last = 0;
  const auto count = [&](const restore_progress& now) {
    EXPECT_GE(now.restored, last);
    last = now.restored;
    if (++calls == 5) throw std::runtime_error("enough");
  };
  EXPECT_EQ(restored({.workers = 3, .progress = count}).restored, 20U);
  EXPECT_EQ(calls, 5U);
}

TEST_F(restore, R42_goes_on_with_fewer_threads_than_requested) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  touch(10);
  ASSERT_TRUE(f.cache.quiesce());
  {
    const room_for_threads none(0);
    EXPECT_EQ(f.cache.restore().error().code, errc::out_of_resources);
  }
  const room_for_threads one(1);
  auto begun = f.cache.restore({.workers = 4});
  ASSERT_TRUE(begun) << describe(begun.error());
  EXPECT_TRUE(begun->wait_for(1min)) << "threads that were not started do not count";
  EXPECT_TRUE(begun->done());
  EXPECT_EQ(begun->progress().restored, 10U);
}

TEST_F(restore, R49_a_moved_from_cache_is_closed) {
  auto other = std::move(f.cache);
  EXPECT_EQ(f.cache.restore().error().code, errc::closed);  // NOLINT(bugprone-use-after-move)
  f.cache = std::move(other);
}

TEST(restore_imports, R4_opens_handles_again_and_reports_stale_ones) {
  fake_fixture f;
  std::vector<fake_handle> handles;
  for (std::uint64_t i = 1; i <= 10; ++i) handles.push_back(f.world->allocate(1, 0x10000 * i, 64));
  for (const auto& one : handles) f.touch(one);
  ASSERT_TRUE(f.cache.quiesce());
  EXPECT_EQ(f.world->open_count(), 0U);
  static_cast<void>(f.world->allocate(1, handles[3].base, 64));  // frees the old one
  f.cache.invalidate({1}, handles[5].allocation());
  f.cache.invalidate({2}, handles[6].allocation());  // another peer's memory
  auto begun = f.cache.restore();
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 8U);
  EXPECT_EQ(begun->failure().error().code, errc::stale_handle);
  for (const std::size_t number : {0U, 1U, 2U, 4U, 6U, 7U, 8U, 9U}) EXPECT_TRUE(f.find(handles[number]));
  EXPECT_FALSE(f.find(handles[5]));
}

TEST(restore_imports, R4_a_remembered_handle_does_not_retire_what_a_request_opened_since) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 64);
  f.touch(old);
  ASSERT_TRUE(f.cache.quiesce());
  const auto fresh = f.world->allocate(1, 0x10000, 64);
  f.touch(fresh);
  auto begun = f.cache.restore();
  ASSERT_TRUE(begun);
  begun->wait();
  EXPECT_EQ(begun->progress().restored, 0U);
  EXPECT_TRUE(f.find(fresh));
}

TEST(remembered_list, R36_forgets_what_touches_joined_ranges) {
  core::remembered_list list(0, nullptr);
  list.reserve(10);
  for (std::uintptr_t i = 0; i < 10; ++i)
    list.add({{1}, {nth(i), nth(i) + 4096}, local_access, false, false, i, 0}, {});
  list.forget({1}, {nth(2), nth(3)});
  list.forget({1}, {nth(3), nth(4)});
  list.forget({1}, {nth(1) + 4096, nth(3) + 1});
  list.forget({1}, {0, nth(0)});
  list.forget({2}, {0, UINTPTR_MAX});
  std::set<std::uint64_t> left;
  for (core::restored_now one; list.take_hottest(one);) left.insert(one.what.hits);
  EXPECT_EQ(left, (std::set<std::uint64_t>{0, 1, 4, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace pinfold::testing::restore_test

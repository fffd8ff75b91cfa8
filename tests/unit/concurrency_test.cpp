// SPDX-License-Identifier: BSD-3-Clause
// Threads that meet in one cache: R8, R9, R10, R46. The stress tests try further interleavings.
#include "support/fixtures/cache_checks.hpp"

#include <latch>
#include <thread>
#include <vector>

namespace pinfold::testing::concurrency_test {
namespace {

using namespace std::chrono_literals;

/// Makes the driver's opens wait until the test lets them go on; not for ever, so that a test that hangs fails.
class open_gate {
 public:
  explicit open_gate(fake_world& world) {
    world.inject([this](driver_call what, const fake_handle&) -> std::optional<error> {
      const auto until = std::chrono::steady_clock::now() + 60s;
      while (what == driver_call::open && !open_ && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(1ms);
      return std::nullopt;
    });
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

TEST(concurrency, R8_same_handle_is_opened_once) {
  fake_fixture f;
  f.world->open_takes = 50ms;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  constexpr int count = 8;
  std::latch ready(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      auto lease = f.acquire(handle);
      ASSERT_TRUE(lease);
      EXPECT_EQ(serial_at(lease->data()), handle.serial);
    });
  for (auto& one : threads) one.join();
  EXPECT_EQ(f.world->opens, 1U);
  EXPECT_EQ(f.cache.statistics().misses, 1U);
  f.expect_sound();
}

TEST(concurrency, R8_error_of_an_open_is_returned_to_all_its_waiters) {
  fake_fixture f;
  constexpr int count = 4;
  f.world->inject([&](driver_call, const fake_handle&) {
    const auto until = std::chrono::steady_clock::now() + 60s;  // until all the others wait
    while (f.cache.statistics().requests_waiting < count - 1 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
    return std::optional(error{errc::driver_error, native_kind::posix, 5, "no"});
  });
  const auto handle = f.world->allocate(1, 0x10000, 64);
  std::latch ready(count);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      auto lease = f.acquire(handle);
      if (!lease && lease.error().native == 5) ++failed;
    });
  for (auto& one : threads) one.join();
  EXPECT_EQ(failed, count);
  EXPECT_EQ(f.world->opens, 1U) << "one driver call, not one for each";
  f.world->heal();
  f.touch(handle);
  f.expect_sound();
}

TEST(concurrency, waiter_asks_again_if_a_registration_was_closed_since_the_driver_refused) {
  fake_fixture f;
  f.touch(f.world->allocate(2, 0x10000, 64));
  const auto handle = f.world->allocate(1, 0x10000, 64);
  std::latch refusing(1);
  std::latch refused(1);
  std::atomic<int> opens{0};
  f.world->inject([&](driver_call what, const fake_handle&) -> std::optional<error> {
    if (what != driver_call::open || opens++ > 0) return std::nullopt;
    refusing.count_down();
    refused.wait();
    return error{errc::driver_error, native_kind::posix, 5, "what is open is in the way"};
  });
  std::thread opener([&] { EXPECT_FALSE(f.acquire(handle)); });
  refusing.wait();
  EXPECT_EQ(f.cache.evict(1), 1U);  // what the program has done before it asks
  std::thread waiter([&] { EXPECT_TRUE(f.acquire(handle)) << "the driver's refusal is older than this request"; });
  std::this_thread::sleep_for(50ms);  // the test passes, too, if the waiter comes late
  refused.count_down();
  opener.join();
  waiter.join();
  f.world->heal();
  f.expect_sound();
}

TEST(concurrency, R8_different_handles_are_opened_in_parallel_while_hits_continue) {
  fake_fixture f;
  const auto cached = f.world->allocate(2, 0x10000, 64);
  f.touch(cached);
  open_gate gate(*f.world);
  constexpr std::uint64_t count = 4;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < count; ++i)
    threads.emplace_back([&, handle = f.world->allocate(1, 0x10000 * (i + 1), 64)] { f.touch(handle); });
  while (f.world->busy < count) std::this_thread::yield();  // hangs, and so fails, if opens wait for each other
  f.touch(cached);                                          // a hit while all four opens are inside the driver
  EXPECT_EQ(f.world->busy, count);
  gate.open();
  for (auto& one : threads) one.join();
  EXPECT_EQ(f.world->busy_most, count);
  f.world->heal();
}

TEST(concurrency, R8_wait_for_another_threads_open_has_a_deadline) {
  fake_fixture f({.wait_timeout = 20ms});
  open_gate gate(*f.world);
  const auto handle = f.world->allocate(1, 0x10000, 64);
  std::thread opener([&] { f.touch(handle); });
  while (f.world->busy == 0) std::this_thread::yield();
  auto refused = f.acquire(handle);
  gate.open();
  opener.join();
  f.world->heal();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::timed_out);
  EXPECT_TRUE(f.find(handle)) << "the thread that did not wait has not disturbed the opener";
  f.expect_sound();
}

TEST(concurrency, R9_request_waits_for_the_close_of_its_own_handle) {
  fake_fixture f({.retain = false});
  f.world->close_takes = 80ms;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  auto lease = f.acquire(handle);
  std::thread releasing([&] { lease->release(); });
  while (f.world->closes == 0) std::this_thread::yield();
  auto again = f.acquire(handle);
  ASSERT_TRUE(again) << describe(again.error());
  releasing.join();
  EXPECT_EQ(f.cache.statistics().failed_opens, 0U) << "it never saw 'already mapped' because of us";
  f.expect_sound();
}

TEST(concurrency, R9_overlapping_close_in_flight_is_waited_for) {
  fake_fixture f({.retain = false});
  f.world->close_takes = 80ms;
  auto lease = f.acquire(f.world->allocate(1, 0x10000, 64));
  const auto grown = f.world->allocate(1, 0x10000, 128);
  std::thread releasing([&] { lease->release(); });
  while (f.world->closes == 0) std::this_thread::yield();
  EXPECT_TRUE(f.acquire(grown));
  releasing.join();
  f.expect_sound();
}

TEST(concurrency, R10_open_that_cannot_be_kept_is_closed) {
  fake_fixture f({.max_bytes = 8192});
  f.world->extra_bytes = 8192;  // fits when reserved, not when opened
  auto refused = f.acquire(f.world->allocate(1, 0x10000, 4096));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::larger_than_budget);
  EXPECT_EQ(f.world->opens, 1U);
  EXPECT_EQ(f.world->open_count(), 0U);
  f.expect_sound();
}

TEST(concurrency, R10_open_that_cannot_be_kept_or_closed_is_quarantined) {
  fake_fixture f({.max_bytes = 8192});
  f.world->extra_bytes = 8192;
  f.world->inject([](driver_call call, const fake_handle&) -> std::optional<error> {
    if (call == driver_call::open) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "the close fails"};
  });
  EXPECT_EQ(f.acquire(f.world->allocate(1, 0x10000, 4096)).error().code, errc::larger_than_budget);
  EXPECT_EQ(f.cache.statistics().quarantined, 1U);
  f.expect_sound();
  f.world->heal();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.world->open_count(), 0U);
  f.expect_sound();
}

TEST(concurrency, invalidation_during_an_open_keeps_the_entry_out_of_the_index) {
  fake_fixture f;
  open_gate gate(*f.world);
  const auto handle = f.world->allocate(1, 0x10000, 64);
  std::thread opener([&] {
    auto lease = f.acquire(handle);
    ASSERT_TRUE(lease) << "it asked before the memory went away";
    EXPECT_TRUE(lease->stale());
  });
  while (f.world->busy == 0) std::this_thread::yield();
  f.cache.invalidate({1}, handle.allocation());
  EXPECT_FALSE(f.find(handle));
  gate.open();
  opener.join();
  f.world->heal();
  EXPECT_FALSE(f.find(handle));
  EXPECT_EQ(f.world->open_count(), 0U);
  f.touch(handle);
  f.expect_sound();
}

TEST(concurrency, flush_waits_for_the_closes_of_other_threads) {
  fake_fixture f({.retain = false});
  f.world->close_takes = 200ms;
  auto lease = f.acquire(f.world->allocate(1, 0x10000, 64));
  std::thread releasing([&] { lease->release(); });
  while (f.world->closes == 0) std::this_thread::yield();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.world->open_count(), 0U);
  EXPECT_EQ(f.cache.statistics().open, 0U);
  releasing.join();
}

TEST(concurrency, R46_leases_are_released_on_other_threads) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  for (int i = 0; i < 100; ++i) {
    auto lease = f.acquire(handle);
    std::thread([moved = std::move(*lease)]() mutable { moved.release(); }).join();
  }
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_TRUE(f.cache.quiesce());
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::concurrency_test

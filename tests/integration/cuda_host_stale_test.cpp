// SPDX-License-Identifier: BSD-3-Clause
// Host memory that goes away while the CUDA driver has it registered, with one cache and with several (R69). The
// emulation knows no pages: where the next registration of the same address must be a new one, its calls are counted.
#include "support/fixtures/cuda_test.hpp"
#include "support/host/test_pages.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>
#include <pinfold/registrars/cuda_host.hpp>

#include <atomic>
#include <optional>
#include <thread>

namespace pinfold::testing::cuda_host_stale_test {
namespace {

using namespace std::chrono_literals;
using cuda::status;
using host_cache = cache<cuda_host_registrar>;

class cuda_host_stale : public cuda_test {
 protected:
  static constexpr std::size_t page = test_pages::page;

  static host_cache make(monitor_choice monitor, cache_options options = {}) {
    options.monitor = monitor;
    return host_cache(cuda_host_registrar(), std::move(options));
  }
  static host_cache manual() { return make(monitor_choice::manual); }
  static host_cache watching() { return make(monitor_choice::automatic); }

  void TearDown() override {
    EXPECT_EQ(gpu().counters().host_registrations, 0U);
    cuda_test::TearDown();
  }

  auto acquire(host_cache& cache, std::size_t first = 0, std::size_t count = 4) {
    return cache.acquire(memory.at(first), count * page);
  }
  void expect_conflict(host_cache& cache) {
    const auto refused = acquire(cache);
    ASSERT_FALSE(refused) << "the driver still has the old pages";
    EXPECT_EQ(refused.error(), errc::in_use_conflict) << describe(refused.error());
    EXPECT_EQ(refused.error().native, static_cast<int>(status::host_memory_already_registered));
  }
  /// Expects a lease on a new registration of the driver.
  void expect_anew(host_cache& cache) {
    const auto before = calls();
    const auto lease = acquire(cache);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_TRUE(real_gpu() || calls() > before) << "the old registration was handed out";
  }
  static std::uint64_t calls() { return real_gpu() ? 0 : emulation().calls("cuMemHostRegister"); }
  static std::uint64_t registrations() { return gpu().counters().host_registrations; }
  void announce() { announce_gone(const_cast<void*>(memory.at(0)), 4 * page); }

  test_pages memory{64};
};

TEST_F(cuda_host_stale, R69_invalidated_memory_under_a_lease_is_a_conflict_until_the_lease_ends) {
  auto cache = manual();
  auto held = acquire(cache);
  ASSERT_TRUE(held);
  cache.invalidate(memory.at(0), 4 * page);
  EXPECT_TRUE(held->stale());
  expect_conflict(cache);
  EXPECT_TRUE(held->release());
  expect_anew(cache);
}

TEST_F(cuda_host_stale, R69_invalidation_of_a_part_of_the_registration_is_enough) {
  auto cache = manual();
  auto held = acquire(cache);
  ASSERT_TRUE(held);
  cache.invalidate(memory.at(3), page);
  expect_conflict(cache);
}

TEST_F(cuda_host_stale, R69_announced_memory_is_registered_anew_though_another_cache_has_it) {
  auto one = watching();
  auto other = watching();
  ASSERT_TRUE(acquire(one) && acquire(other));
  EXPECT_TRUE(real_gpu() || registrations() == 1U) << "they share it";
  announce();
  expect_anew(one);
  ASSERT_TRUE(acquire(other));
  EXPECT_TRUE(real_gpu() || registrations() == 1U) << "they share the new one";
}

TEST_F(cuda_host_stale, R69_a_cache_that_makes_no_request_is_not_needed_to_know_that_memory_is_gone) {
  auto idle = watching();
  auto held = acquire(idle);
  ASSERT_TRUE(held);
  announce();
  auto other = watching();
  expect_conflict(other);
  EXPECT_TRUE(held->release());
  expect_anew(other);
}

TEST_F(cuda_host_stale, R69_many_events_that_nobody_read_leave_nothing_shared) {
  auto idle = watching();
  ASSERT_TRUE(acquire(idle));
  for (int i = 0; i < 10000; ++i) announce();
  auto other = watching();
  expect_anew(other);
}

TEST_F(cuda_host_stale, R69_unmapped_memory_is_registered_anew_under_a_lease_of_another_range) {
  auto cache = watching();
  auto beside = acquire(cache, 32, 4);
  ASSERT_TRUE(acquire(cache) && beside);
  announce();
  expect_anew(cache);
  EXPECT_FALSE(beside->stale());
}

TEST_F(cuda_host_stale, R69_an_idle_registration_of_another_cache_in_the_way_is_closed) {
  auto one = manual();
  auto other = manual();
  ASSERT_TRUE(acquire(one, 0, 4) && acquire(one, 20, 4));
  EXPECT_TRUE(acquire(other, 2, 4)) << "it overlaps the first one";
  EXPECT_FALSE(one.find(memory.at(0), page));
  EXPECT_TRUE(one.find(memory.at(20), page)) << "it was not in the way";
}

TEST_F(cuda_host_stale, R69_a_leased_registration_of_another_cache_in_the_way_is_a_conflict) {
  auto one = manual();
  auto other = manual();
  auto held = acquire(one, 0, 4);
  ASSERT_TRUE(held);
  const auto refused = acquire(other, 2, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::in_use_conflict) << describe(refused.error());
  EXPECT_TRUE(held->release());
  EXPECT_TRUE(acquire(other, 2, 4));
}

TEST_F(cuda_host_stale, R69_registration_whose_close_was_refused_is_not_shared) {
  PINFOLD_EMULATION_ONLY();
  auto one = manual();
  auto other = manual();
  ASSERT_TRUE(acquire(one));
  emulation().fail("cuMemHostUnregister", 1, static_cast<int>(status::launch_failed), true);
  EXPECT_EQ(one.flush().error().native, static_cast<int>(status::launch_failed));
  const auto refused = acquire(other);
  ASSERT_FALSE(refused) << "the driver has pages that no monitor watches any more";
  EXPECT_EQ(refused.error(), errc::in_use_conflict) << describe(refused.error());
  emulation().fail("cuMemHostUnregister", 1, 0, false);
  expect_anew(other);
  EXPECT_EQ(one.statistics().quarantined, 0U);
}

TEST_F(cuda_host_stale, R69_what_a_destroyed_registrar_could_not_close_is_closed_when_it_is_in_the_way) {
  PINFOLD_EMULATION_ONLY();
  {
    cuda_host_registrar gone;
    ASSERT_TRUE(gone.open(memory.pages(0, 4), local_access));
    emulation().fail("cuMemHostUnregister", 1, static_cast<int>(status::launch_failed), true);
  }
  auto cache = manual();
  const auto refused = acquire(cache);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, static_cast<int>(status::launch_failed)) << describe(refused.error());
  emulation().fail("cuMemHostUnregister", 1, 0, false);
  expect_anew(cache);
}

TEST_F(cuda_host_stale, R69_a_program_that_registers_itself_can_have_idle_registrations_closed) {
  auto cache = manual();
  auto held = acquire(cache, 20, 2);
  ASSERT_TRUE(acquire(cache) && held);
  void* const own = const_cast<void*>(memory.at(2));
  const auto registers = [&] {
    auto answer = status::unknown;
    const auto ask = [&] {
      answer = gpu().calls().mem_host_register(own, 4 * page, 0);
      return status::success;
    };
    gpu().demand(ask);
    return answer;
  };
  EXPECT_EQ(registers(), status::host_memory_already_registered);
  EXPECT_TRUE(close_idle_in_process(cuda_host_registrar::name, memory.pages(2, 4)));
  EXPECT_EQ(registers(), status::success);
  EXPECT_FALSE(close_idle_in_process(cuda_host_registrar::name, memory.pages(20, 2))) << "it is leased";
  EXPECT_FALSE(close_idle_in_process("another", memory.pages(20, 2)));
  gpu().demand([&] { return gpu().calls().mem_host_unregister(own); });
}

// Caches that open, and end, while others ask them to close; with `serial` each has a lock around its driver.
TEST_F(cuda_host_stale, R69_caches_in_each_others_way_never_wait_for_each_other) {
  std::atomic<int> granted{0};
  const auto work = [&](std::size_t first, bool ends) {
    std::optional<host_cache> cache;
    for (std::size_t i = 0; i < 300; ++i) {
      if (!cache || (ends && i % 8 == 0)) cache.emplace(make(monitor_choice::manual, {.serial = i % 16 != 0}));
      if (i % 5 == 0) cache->invalidate(memory.at(first), 8 * page);
      const auto lease = acquire(*cache, first + i % 5, 1 + i % 4);
      EXPECT_TRUE(lease || lease.error() == errc::in_use_conflict) << describe(lease.error());
      granted += lease ? 1 : 0;
    }
  };
  {
    std::jthread a([&] { work(0, false); });
    std::jthread b([&] { work(2, true); });
    std::jthread c([&] { work(1, true); });
  }
  EXPECT_GT(granted.load(), 0);
}

}  // namespace
}  // namespace pinfold::testing::cuda_host_stale_test

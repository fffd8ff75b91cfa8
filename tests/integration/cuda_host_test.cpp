// SPDX-License-Identifier: BSD-3-Clause
// Host memory registered with the CUDA driver, which takes no page twice: shared registrations, conflicts, and the
// application's own registrations.
#include "support/fixtures/cuda_test.hpp"
#include "support/host/test_pages.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/cuda_host.hpp>

#include <thread>

namespace pinfold::testing::cuda_host_test {
namespace {

using namespace std::chrono_literals;
using cuda::status;
using host_cache = cache<cuda_host_registrar>;

class cuda_host : public cuda_test {
 protected:
  static constexpr std::size_t page = test_pages::page;

  static host_cache make(cache_options options = {}) {
    options.monitor = monitor_choice::manual;
    return host_cache(cuda_host_registrar(), std::move(options));
  }
  void TearDown() override {
    EXPECT_EQ(gpu().counters().host_registrations, 0U);
    cuda_test::TearDown();
  }

  void expect_refused(host_cache& cache, const range& what, errc code, status native) {
    const auto refused = cache.acquire(reinterpret_cast<void*>(what.begin), what.size());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), code) << describe(refused.error());
    EXPECT_EQ(refused.error().native, static_cast<int>(native)) << describe(refused.error());
  }
  auto acquire(host_cache& cache, std::size_t first, std::size_t count) {
    return cache.acquire(memory.at(first), count * page);
  }
  std::uint64_t registrations() const { return gpu().counters().host_registrations; }

  test_pages memory{64};
};

TEST_F(cuda_host, device_reads_and_writes_registered_host_memory) {
  auto cache = make();
  auto lease = acquire(cache, 0, 2);
  ASSERT_TRUE(lease) << describe(lease.error());
  const auto device = lease->registration().device_address;
  auto* const bytes = const_cast<void*>(memory.at(0));
  write_pattern(bytes, page, 1);
  EXPECT_TRUE(gpu().holds(device, page, 1));
  gpu().write(device + page, page, 2);
  gpu().demand([] { return gpu().calls().ctx_synchronize(); });
  EXPECT_TRUE(holds_pattern(memory.at(1), page, 2));
}

TEST_F(cuda_host, R20_range_inside_another_caches_registration_shares_it) {
  auto one = make();
  auto two = make();
  auto outer = acquire(one, 0, 8);
  auto inner = acquire(two, 2, 3);
  ASSERT_TRUE(outer && inner);
  EXPECT_TRUE(real_gpu() || registrations() == 1U);
  EXPECT_EQ(inner->registration().device_address, outer->registration().device_address + 2 * page);
  EXPECT_NE(inner->registration().number, outer->registration().number);
  EXPECT_TRUE(outer->release());
  EXPECT_TRUE(one.flush());
  EXPECT_TRUE(real_gpu() || registrations() == 1U) << "the inner user still holds it";
  gpu().write(inner->registration().device_address, page, 3);
  EXPECT_TRUE(inner->release());
  EXPECT_TRUE(two.flush());
}

TEST_F(cuda_host, R6_partly_overlapping_idle_registrations_are_closed_and_replaced) {
  auto cache = make();
  ASSERT_TRUE(acquire(cache, 0, 4));
  ASSERT_TRUE(acquire(cache, 6, 4));
  ASSERT_TRUE(acquire(cache, 20, 2));
  auto across = acquire(cache, 2, 6);
  ASSERT_TRUE(across) << describe(across.error());
  const auto now = cache.statistics();
  EXPECT_EQ(now.conflicts, 2U);
  EXPECT_EQ(now.open, 2U);
  EXPECT_TRUE(cache.find(memory.at(20), page)) << "it was not in the way";
}

TEST_F(cuda_host, R6_a_partly_overlapping_lease_is_in_use_conflict) {
  auto cache = make();
  auto lease = acquire(cache, 0, 4);
  ASSERT_TRUE(lease);
  expect_refused(cache, memory.pages(2, 4), errc::in_use_conflict, status::host_memory_already_registered);
  EXPECT_EQ(cache.statistics().open, 1U);
  EXPECT_TRUE(lease->release());
  EXPECT_TRUE(acquire(cache, 2, 4));
}

TEST_F(cuda_host, R6_acquire_waits_for_the_conflicting_lease_until_the_deadline) {
  auto cache = make({.conflict_timeout = 60s});
  auto lease = acquire(cache, 0, 4);
  ASSERT_TRUE(lease);
  std::jthread later([taken = std::move(*lease)]() mutable {
    std::this_thread::sleep_for(30ms);
    static_cast<void>(taken.release());
  });
  EXPECT_TRUE(acquire(cache, 2, 4));
}

TEST_F(cuda_host, R6_a_part_that_the_application_has_registered_is_in_use_conflict_and_stays) {
  auto cache = make();
  ASSERT_TRUE(acquire(cache, 20, 2));
  void* const own = const_cast<void*>(memory.at(4));
  gpu().demand([&] { return gpu().calls().mem_host_register(own, page, cuda::host_register_portable); });
  expect_refused(cache, memory.pages(2, 6), errc::in_use_conflict, status::host_memory_already_registered);
  EXPECT_TRUE(cache.find(memory.at(20), page)) << "nothing was evicted";
  gpu().demand([&] { return gpu().calls().mem_host_unregister(own); });
  EXPECT_TRUE(acquire(cache, 4, 1));
}

/// Memory that the device reads at the lease's address, and that no request after the lease is served with.
void expect_lent(host_cache& cache, void* at, std::size_t bytes) {
  write_pattern(at, bytes, 7);
  {
    const auto lease = cache.acquire(at, bytes);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_TRUE(gpu().holds(lease->registration().device_address, bytes, 7));
    EXPECT_EQ(lease->registration().number, 0U);
    const auto again = cache.acquire(at, bytes);
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(again->registration().device_address, lease->registration().device_address);
    EXPECT_FALSE(cache.find(at, bytes));
  }
  EXPECT_EQ(cache.statistics().open, 0U);
}

TEST_F(cuda_host, memory_that_the_application_has_registered_is_used_as_it_is) {
  auto cache = make();
  void* const own = const_cast<void*>(memory.at(4));
  gpu().demand([&] { return gpu().calls().mem_host_register(own, 4 * page, cuda::host_register_portable); });
  expect_lent(cache, const_cast<void*>(memory.at(5)), 2 * page);
  gpu().demand([&] { return gpu().calls().mem_host_unregister(own); });
  const auto lease = acquire(cache, 5, 2);
  ASSERT_TRUE(lease);
  EXPECT_NE(lease->registration().number, 0U) << "the cache's own from now on";
}

TEST_F(cuda_host, memory_that_the_driver_allocated_is_used_as_it_is) {
  auto cache = make();
  for (int round = 0; round < 3; ++round) {
    void* made = nullptr;
    gpu().demand([&] { return gpu().calls().mem_host_alloc(&made, 8 * page, cuda::host_register_portable); });
    expect_lent(cache, made, 8 * page);
    expect_lent(cache, static_cast<char*>(made) + page, page);
    gpu().demand([&] { return gpu().calls().mem_free_host(made); });
    EXPECT_FALSE(cache.acquire(made, page)) << "it is not mapped any more";
  }
}

TEST_F(cuda_host, R41_memory_unregistered_by_the_application_is_a_failed_close) {
  cuda_host_registrar registrar;
  const auto made = registrar.open(memory.pages(0, 1), local_access);
  ASSERT_TRUE(made);
  void* const same = const_cast<void*>(memory.at(0));
  gpu().demand([&] { return gpu().calls().mem_host_unregister(same); });
  const auto closed = registrar.close(*made);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().native, static_cast<int>(status::host_memory_not_registered));
  gpu().demand([&] { return gpu().calls().mem_host_register(same, page, cuda::host_register_portable); });
  EXPECT_TRUE(registrar.close(*made)) << "all was as before";
}

TEST_F(cuda_host, a_read_only_registration_is_not_shared_for_writing) {
  cuda_host_registrar reads({.read_only = true});
  cuda_host_registrar writes;
  const auto read = reads.open(memory.pages(0, 4), local_access);
  ASSERT_TRUE(read) << describe(read.error());
  EXPECT_EQ(writes.open(memory.pages(1, 1), local_access).error(), errc::already_mapped);
  EXPECT_TRUE(reads.close(*read));
  const auto written = writes.open(memory.pages(0, 4), local_access);
  ASSERT_TRUE(written);
  const auto inside = reads.open(memory.pages(1, 1), local_access);
  ASSERT_TRUE(inside) << "more than it asked for";
  EXPECT_TRUE(reads.close(*inside) && writes.close(*written));
}

TEST_F(cuda_host, R7_R28_out_of_memory_closes_idle_registrations_one_at_a_time) {
  PINFOLD_EMULATION_ONLY();
  auto cache = make();
  ASSERT_TRUE(acquire(cache, 0, 1));
  ASSERT_TRUE(acquire(cache, 4, 1));
  emulation().fail("cuMemHostRegister", 1, static_cast<int>(status::out_of_memory), false);
  ASSERT_TRUE(acquire(cache, 8, 1));
  EXPECT_EQ(cache.statistics().evicted, 1U);
  EXPECT_FALSE(cache.find(memory.at(0), page)) << "the least recently used one";
  EXPECT_TRUE(cache.find(memory.at(4), page));
  emulation().fail("cuMemHostRegister", 1, static_cast<int>(status::out_of_memory), true);
  expect_refused(cache, memory.pages(12, 1), errc::out_of_resources, status::out_of_memory);
  EXPECT_EQ(cache.statistics().open, 0U);
}

TEST_F(cuda_host, R10_any_single_fault_leaks_nothing) {
  PINFOLD_EMULATION_ONLY();
  for (const char* const call :
       {"cuMemHostRegister", "cuMemHostGetDevicePointer", "cuMemHostUnregister", "cuCtxPushCurrent", "cuCtxPopCurrent"})
    for (std::uint64_t nth = 1; nth < 5; ++nth) {
      SCOPED_TRACE(::testing::Message() << call << ' ' << nth);
      auto cache = make();
      emulation().fail(call, nth, static_cast<int>(status::launch_failed), false);
      for (std::size_t first = 0; first < 6; first += 2) static_cast<void>(acquire(cache, first, 3));
      emulation().fail(call, nth, 0, false);
      ASSERT_EQ(gpu().calls().ctx_set_current(nullptr), status::success);
      EXPECT_TRUE(acquire(cache, 1, 4));
      EXPECT_TRUE(cache.flush());
      EXPECT_EQ(cache.statistics().open, 0U);
      EXPECT_EQ(registrations(), 0U);
    }
}

TEST_F(cuda_host, R42_destroyed_registrar_unregisters_only_its_own_registrations) {
  cuda_host_registrar kept;
  const auto mine = kept.open(memory.pages(0, 4), local_access);
  ASSERT_TRUE(mine);
  {
    cuda_host_registrar gone;
    ASSERT_TRUE(gone.open(memory.pages(1, 1), local_access));
    ASSERT_TRUE(gone.open(memory.pages(10, 1), local_access));
  }
  EXPECT_TRUE(real_gpu() || registrations() == 1U);
  EXPECT_TRUE(gpu().holds(mine->device_address, 0, 0));
  EXPECT_TRUE(kept.close(*mine));
}

TEST_F(cuda_host, R42_what_a_destroyed_registrar_could_not_unregister_is_unregistered_by_the_next) {
  PINFOLD_EMULATION_ONLY();
  {
    cuda_host_registrar gone;
    ASSERT_TRUE(gone.open(memory.pages(0, 4), local_access));
    emulation().fail("cuMemHostUnregister", 1, static_cast<int>(status::launch_failed), false);
  }
  ASSERT_EQ(registrations(), 1U);
  cuda_host_registrar next;
  const auto other = next.open(memory.pages(8, 1), local_access);
  ASSERT_TRUE(other);
  EXPECT_EQ(registrations(), 1U);
  EXPECT_TRUE(next.close(*other));
}

TEST_F(cuda_host, threads_of_two_caches_share_the_same_pages) {
  auto one = make({.retain = false});
  auto two = make({.retain = false});
  const auto work = [&](host_cache& cache, std::size_t first) {
    for (std::size_t i = 0; i < 300; ++i) {
      auto lease = acquire(cache, first + i % 5, 1 + i % 4);
      EXPECT_TRUE(lease || lease.error() == errc::in_use_conflict) << describe(lease.error());
    }
  };
  std::jthread a([&] { work(one, 0); });
  std::jthread b([&] { work(two, 2); });
  std::jthread c([&] { work(one, 1); });
}

}  // namespace
}  // namespace pinfold::testing::cuda_host_test

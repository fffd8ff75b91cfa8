// SPDX-License-Identifier: BSD-3-Clause
// Which code may unmap a slab of a pool, and when: R50, R51.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::pool_lifetime_test {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;

using pool_type = registered_pool<fake_registrar>;
using shared_pool = synchronized_registered_pool<fake_registrar>;

bool mapped(const void* address) {
  unsigned char present = 0;
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~std::uintptr_t{4095});
  return ::mincore(page, 1, &present) == 0;
}

TEST(pool_lifetime, R50_trim_unmaps_unused_slabs) {
  local_fixture f;
  pool_type pool(f.cache);
  void* const stays = pool.allocate(1);
  void* const goes = pool.allocate(6 * mib);
  EXPECT_EQ(pool.trim(), 0U);
  pool.deallocate(goes, 6 * mib);
  EXPECT_EQ(pool.trim(), 6 * mib);
  EXPECT_FALSE(mapped(goes));
  EXPECT_TRUE(mapped(stays));
  EXPECT_EQ(f.device->open_count(), 1U);
  pool.deallocate(stays, 1);
  EXPECT_EQ(pool.trim(), 2 * mib);
  EXPECT_EQ(f.device->open_count(), 0U);
  EXPECT_EQ(f.cache.statistics().invalidated_while_leased, 0U);
  EXPECT_EQ(pool.usage().bytes, 0U);
}

TEST(pool_lifetime, R51_slab_with_a_lease_of_the_cache_stays_mapped) {
  local_fixture f;
  pool_type pool(f.cache);
  void* const data = pool.allocate(4096);
  auto in_flight = f.cache.acquire(data, 4096);
  ASSERT_TRUE(in_flight);
  EXPECT_EQ(f.device->opened, 1U) << "the slab's registration is found";
  pool.deallocate(data, 4096);
  EXPECT_EQ(pool.trim(), 0U);
  EXPECT_TRUE(mapped(data));
  EXPECT_TRUE(in_flight->stale()) << "and the lease says so";
  EXPECT_EQ(f.device->open_count(), 1U);
  EXPECT_TRUE(in_flight->release());
  EXPECT_EQ(pool.trim(), 2 * mib);
  EXPECT_FALSE(mapped(data));
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(pool_lifetime, R51_memory_freed_under_a_pool_lease_is_not_reused) {
  local_fixture f;
  pool_type pool(f.cache);
  void* const data = pool.allocate(4096);
  auto in_flight = pool.lease(data);
  ASSERT_TRUE(in_flight);
  EXPECT_EQ(in_flight->registration().key, pool.registration(data)->key);
  pool.deallocate(data, 4096);
  EXPECT_FALSE(pool.try_deallocate(data, 4096)) << "it is freed all the same";
  void* const other = pool.allocate(4096);
  EXPECT_NE(other, data);
  EXPECT_EQ(pool.trim(), 0U);
  in_flight->release();
  EXPECT_EQ(pool.allocate(4096), data);
  pool.deallocate(data, 4096);
  pool.deallocate(other, 4096);
  EXPECT_EQ(pool.usage().used, 0U);
}

TEST(pool_lifetime, R51_slab_outlives_its_pool_under_a_lease) {
  local_fixture f;
  pool_lease<fake_registrar> in_flight;
  void* data = nullptr;
  {
    pool_type pool(f.cache, {.abandoned = [](auto) { ADD_FAILURE() << "everything was returned"; }});
    data = pool.allocate(4096);
    in_flight = std::move(*pool.lease(data));
    pool.deallocate(data, 4096);
  }
  EXPECT_TRUE(mapped(data));
  EXPECT_EQ(f.device->open_count(), 1U);
  in_flight.release();
  EXPECT_FALSE(mapped(data));
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(pool_lifetime, R51_slab_outlives_its_pool_under_both_kinds_of_lease) {
  local_fixture f;
  void* data = nullptr;
  auto of_pool = pool_lease<fake_registrar>();
  {
    pool_type pool(f.cache);
    data = pool.allocate(4096);
    of_pool = std::move(*pool.lease(data));
    pool.deallocate(data, 4096);
  }
  auto of_cache = f.cache.acquire(data, 4096);
  ASSERT_TRUE(of_cache);
  of_pool.release();
  EXPECT_TRUE(mapped(data)) << "and what remembers it is not lost, as LeakSanitizer sees";
  EXPECT_TRUE(of_cache->release());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(pool_lifetime, R50_registration_can_be_read_while_slabs_are_trimmed) {
  local_fixture f;
  shared_pool pool(f.cache, {.slab_bytes = 64 * 1024, .pages = page_kind::plain});
  std::atomic<void*> last{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> found{0};
  std::thread asking([&] {
    while (!stop)
      if (const auto got = pool.registration(last.load())) found += got->key == 0 ? 0U : 1U;
  });
  for (int i = 0; i < 200; ++i) {
    void* const data = pool.allocate(100);
    last = data;
    pool.deallocate(data, 100);
    for (const std::size_t before = found; found < before + 2;) std::this_thread::yield();
    pool.trim();
  }
  stop = true;
  asking.join();
}

TEST(pool_lifetime, R51_allocations_outlive_their_pool) {
  auto device = std::make_shared<fake_device>();
  auto cache = std::make_shared<pinfold::cache<fake_registrar>>(fake_registrar{device});
  std::vector<slab_info> told;
  void* data = nullptr;
  {
    registered_pool pool(cache, {.abandoned = [&](auto slabs) { told.assign(slabs.begin(), slabs.end()); }});
    data = pool.allocate(4096);
    static_cast<void>(pool.try_deallocate(pool.allocate(9 * mib), 9 * mib));
  }
  ASSERT_EQ(told.size(), 1U) << "the unused slab went";
  EXPECT_EQ(told[0].allocations, 1U);
  EXPECT_TRUE(told[0].memory.contains({reinterpret_cast<std::uintptr_t>(data), told[0].memory.begin + 1}));
  cache.reset();
  std::memset(data, 1, 4096);
  EXPECT_EQ(device->open_count(), 1U) << "still registered: the slab has a share in its cache";
}

TEST(pool_lifetime, R50_sub_registrations_of_trimmed_slabs_are_never_found_again) {
  local_fixture f;
  pool_type pool(f.cache);
  void* const data = pool.allocate(4096);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  f.touch(begin, begin + 64, access_flags::remote_read);
  EXPECT_TRUE(f.cached(begin, begin + 64, access_flags::remote_read));
  pool.deallocate(data, 4096);
  EXPECT_EQ(pool.trim(), 2 * mib);
  EXPECT_FALSE(f.cached(begin, begin + 64));
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(pool_lifetime, slab_does_not_hit_an_older_registration_of_its_range) {
  constexpr std::uintptr_t around = std::uintptr_t{64} << 30U;
  local_fixture f;
  // A registration that was never invalidated covers the place of the slab, which will be near the last mapping. A
  // registration of all addresses would take half a minute.
  void* const last = ::mmap(nullptr, 2 * mib, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(last, MAP_FAILED);
  ::munmap(last, 2 * mib);
  const auto begin = reinterpret_cast<std::uintptr_t>(last) - around;
  const auto end = std::min(begin + 2 * around, std::uintptr_t{1} << 47U);
  f.touch(begin, end);
  pool_type pool(f.cache);
  auto one = pool.allocate_registered(1);
  ASSERT_TRUE(one);
  const auto slab = f.device->now().at(one->registration.key).memory;
  ASSERT_TRUE((range{begin, end}.contains(slab)));
  EXPECT_EQ(slab.size(), 2 * mib);
  EXPECT_FALSE(f.cached(begin, begin + 0x1000));
  pool.deallocate(one->data, 1);
}

TEST(pool_lifetime, R51_threads_allocate_free_trim_and_lease_concurrently) {
  local_fixture f;
  shared_pool pool(f.cache, {.slab_bytes = 64 * 1024, .pages = page_kind::plain});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::array<std::pair<unsigned char*, std::size_t>, 16> own{};
      for (unsigned i = 0; i < 4000; ++i) {
        auto& [data, bytes] = own[i % own.size()];
        if (data != nullptr) {
          EXPECT_EQ(std::count(data, data + bytes, static_cast<unsigned char>(t)), static_cast<std::ptrdiff_t>(bytes));
          auto lease = pool.lease(data);
          EXPECT_TRUE(lease);
          pool.deallocate(data, bytes);
        }
        bytes = 1 + (i * 2654435761U >> 17U) % 6000;
        data = static_cast<unsigned char*>(pool.allocate(bytes));
        std::memset(data, static_cast<int>(t), bytes);
        if (i % 512 == t) pool.trim();
      }
      for (const auto& [data, bytes] : own) pool.deallocate(data, bytes);
    });
  }
  for (auto& one : threads) one.join();
  EXPECT_EQ(pool.usage().allocations, 0U);
  EXPECT_EQ(pool.usage().used, 0U);
  EXPECT_EQ(pool.usage().misuses, 0U);
  pool.trim();
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(pool_lifetime, driver_is_called_without_the_lock) {
  local_fixture f;
  shared_pool pool(f.cache);
  void* const one = pool.allocate(1);
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    std::thread([&] { EXPECT_TRUE(pool.registration(one)); }).join();
    return std::nullopt;
  });
  void* const two = pool.allocate(5 * mib);
  f.device->fail_opens({});
  pool.deallocate(one, 1);
  pool.deallocate(two, 5 * mib);
}

// The memory of the child is a copy, and a device that is given the registration reads the parent's.
int uses_in_child(shared_pool& pool, pool_lease<fake_registrar>& lease, void* data) {
  const bool refuses = pool.allocate_registered(64).error().code == errc::closed &&
                       pool.registration(data).error().code == errc::closed &&
                       pool.lease(data).error().code == errc::closed && !pool.try_expand(data, 64, 128);
  if (!refuses || !pool.try_deallocate(data, 64) || pool.trim() != 0) return 1;
  lease = {};
  return pool.usage().bytes == 0 && pool.slabs().empty() ? 0 : 2;
}

TEST(pool_lifetime, R37_pool_does_nothing_in_a_child) {
  local_fixture f;
  std::optional<shared_pool> pool(f.cache);
  void* const data = pool->allocate(64);
  auto lease = pool->lease(data);
  ASSERT_TRUE(lease);
  const pid_t child = ::fork();
  if (child == 0) {
    const int outcome = uses_in_child(*pool, *lease, data);
    pool.reset();
    ::_exit(f.device->open_count() == 1 ? outcome : 3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pool->registration(data)) << "of the parent";
  pool->deallocate(data, 64);
}

}  // namespace
}  // namespace pinfold::testing::pool_lifetime_test

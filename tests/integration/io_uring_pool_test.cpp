// SPDX-License-Identifier: BSD-3-Clause
// A pool over io_uring: its memory goes to a file by the pool's own registration (R50), and the kernel has nothing
// pinned afterwards.
#include "support/doubles/test_ring.hpp"
#include "support/host/process_limits.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::io_uring_pool_test {
namespace {

constexpr std::size_t kib = 1024;

struct scratch_file {
  int descriptor = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  ~scratch_file() { ::close(descriptor); }
};

template <class Numbers>
void expect_in_file(int file, const Numbers& sent, std::size_t at) {
  Numbers got(sent.size());
  const auto bytes = sent.size() * sizeof sent[0];
  ASSERT_EQ(::pread(file, got.data(), bytes, static_cast<off_t>(at)), static_cast<ssize_t>(bytes));
  EXPECT_TRUE(std::ranges::equal(got, sent));
}

void expect_pinned(std::size_t bytes) {
  for (int i = 0; i < 30'000 && counted_by_kernel("VmPin") != bytes; ++i) ::usleep(1000);  // after a grace period
  EXPECT_EQ(counted_by_kernel("VmPin"), bytes);
}

// Slabs of small pages: the charge for huge ones is more than an ordinary user may pin twice.
pool_options small_slabs() { return {.slab_bytes = 512 * kib, .pages = page_kind::plain}; }

class io_uring_pool : public ::testing::TestWithParam<monitor_choice> {};

TEST_P(io_uring_pool, R50_vectors_are_written_to_a_file_without_another_registration) {
  const auto start = counted_by_kernel("VmPin");
  test_ring ring;
  scratch_file file;
  {
    cache cache(registrar_on(ring), {.monitor = GetParam()});
    registered_pool pool(cache, small_slabs());
    std::pmr::vector<std::uint64_t> one(&pool);
    std::pmr::vector<std::uint64_t> two(&pool);
    for (std::uint64_t i = 0; i < 20'000; ++i) one.push_back(i * 2654435761U), two.push_back(~i);
    const auto calls = cache.backend().calls();
    std::size_t at = 0;
    for (const auto* numbers : {&one, &two}) {
      const auto bytes = static_cast<unsigned>(numbers->size() * sizeof(std::uint64_t));
      const auto known = pool.registration(numbers->data());
      ASSERT_TRUE(known) << describe(known.error());
      ASSERT_EQ(ring.write(file.descriptor, numbers->data(), bytes, at, known->index), static_cast<int>(bytes));
      expect_in_file(file.descriptor, *numbers, at);
      at += bytes;
    }
    std::pmr::vector<std::uint64_t> back(one.size(), &pool);
    const auto bytes = static_cast<unsigned>(back.size() * sizeof back[0]);
    ASSERT_EQ(ring.read(file.descriptor, back.data(), bytes, 0, pool.registration(back.data())->index),
              static_cast<int>(bytes));
    EXPECT_EQ(back, one);
    EXPECT_EQ(cache.backend().calls(), calls) << "nothing was registered for the I/O";
    EXPECT_EQ(counted_by_kernel("VmPin"), start + pool.usage().bytes);
  }
  expect_pinned(start);
}

TEST_P(io_uring_pool, R50_trim_unpins_unused_slabs) {
  const auto start = counted_by_kernel("VmPin");
  test_ring ring;
  cache cache(registrar_on(ring), {.monitor = GetParam()});
  registered_pool pool(cache, small_slabs());
  void* const large = pool.allocate(2048 * kib);
  void* const small = pool.allocate(kib);
  EXPECT_EQ(counted_by_kernel("VmPin"), start + 2560 * kib);
  pool.deallocate(large, 2048 * kib);
  EXPECT_EQ(pool.trim(), 2048 * kib);
  expect_pinned(start + 512 * kib);
  pool.deallocate(small, kib);
  EXPECT_EQ(pool.trim(), 512 * kib);
  expect_pinned(start);
}

TEST_P(io_uring_pool, R51_lease_keeps_a_freed_buffer_registered_for_the_kernel) {
  const auto start = counted_by_kernel("VmPin");
  test_ring ring;
  scratch_file file;
  {
    cache cache(registrar_on(ring), {.monitor = GetParam()});
    pool_lease<io_uring_registrar> in_flight;
    std::byte* data = nullptr;
    {
      registered_pool pool(cache, small_slabs());
      data = static_cast<std::byte*>(pool.allocate(4 * kib));
      std::fill(data, data + 4 * kib, std::byte{7});
      in_flight = std::move(*pool.lease(data));
      pool.deallocate(data, 4 * kib);
    }
    EXPECT_EQ(ring.write(file.descriptor, data, 4 * kib, 0, in_flight.registration().index), static_cast<int>(4 * kib));
    expect_in_file(file.descriptor, std::vector<std::byte>(4 * kib, std::byte{7}), 0);
  }
  expect_pinned(start);
}

TEST_P(io_uring_pool, R50_threads_share_one_ring_and_one_pool) {
  const auto start = counted_by_kernel("VmPin");
  test_ring ring;
  {
    cache cache(registrar_on(ring), {.monitor = GetParam()});
    synchronized_registered_pool pool(cache, {.slab_bytes = 64 * kib, .pages = page_kind::plain});
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < 300; ++i) {
          const std::size_t bytes = 1 + (i * 7919 + t) % (40 * kib);
          auto got = pool.allocate_registered(bytes);
          ASSERT_TRUE(got) << describe(got.error());
          EXPECT_TRUE(pool.try_deallocate(got->data, bytes));
          if (i % 32 == t) pool.trim();
        }
      });
  }
  expect_pinned(start);
}

INSTANTIATE_TEST_SUITE_P(monitors, io_uring_pool, ::testing::Values(monitor_choice::automatic, monitor_choice::manual),
                         [](const auto& which) {
                           return std::string(which.param == monitor_choice::automatic ? "automatic" : "manual");
                         });

}  // namespace
}  // namespace pinfold::testing::io_uring_pool_test

// SPDX-License-Identifier: BSD-3-Clause
// Two caches on one device and many threads, which replace their memory all the time: no wrong byte, nothing left open.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/settings.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing::verbs_stress_test {
namespace {

constexpr std::size_t bytes = 16384;
constexpr std::uint32_t least_rounds = 8;  // of each thread, in a machine so slow that the time is over before
using cache_type = pinfold::cache<verbs_registrar>;

using both_caches = std::array<cache_type*, 2>;

// Replaces the memory, after invalidating it in the caches that no monitor tells.
void replace(const both_caches& told, std::uint32_t* memory, bool by_discarding) {
  for (auto* const one : told)
    if (one != nullptr) one->invalidate(memory, bytes);
  if (by_discarding) {
    ::madvise(memory, bytes, MADV_DONTNEED);
  } else {
    attacks::map_over({reinterpret_cast<std::byte*>(memory), bytes});
  }
}

struct outcome {
  std::atomic<std::uint64_t> transfers{0}, wrong{0}, refused{0};
};

// The loop of one thread: it writes its own buffer into another, both through a cache, and now and then replaces the
// first.
void move(cache_type& cache, const both_caches& told, const rdma_device& device, unsigned seed,
          std::chrono::steady_clock::time_point until, outcome& all) {
  std::mt19937 random(seed);
  auto* const from = static_cast<std::uint32_t*>(attacks::elsewhere(bytes));
  auto* const to = static_cast<std::uint32_t*>(attacks::elsewhere(bytes));
  rdma_pair pair(device);
  for (std::uint32_t round = 1; round <= least_rounds || std::chrono::steady_clock::now() < until; ++round) {
    if (random() % 4 == 0) replace(told, from, random() % 2 == 0);
    std::fill_n(from, bytes / 4, seed * 1000003 + round);
    auto read = cache.acquire(from, bytes, access_flags::local_read);
    auto written = cache.acquire(to, bytes, access_flags::remote_write);
    const bool good =
        read && written &&
        pair.write(from, bytes, read->registration().lkey, {to, written->registration().rkey}) == IBV_WC_SUCCESS;
    if (!good) {
      ++all.refused;
      break;  // a pair cannot be used after an error
    }
    if (std::memcmp(from, to, bytes) != 0) ++all.wrong;
    ++all.transfers;
  }
  for (auto* const mine : {from, to}) {
    for (auto* const one : told)
      if (one != nullptr) one->invalidate(mine, bytes);
    ::munmap(mine, bytes);
  }
}

// With a sanitizer's allocator the hooks do not prove themselves: then the threads invalidate.
monitor_choice monitor_here() {
  const rdma_device device;
  const cache_type probe(device.registrar());
  return probe.monitors().starts_with("none") ? monitor_choice::manual : monitor_choice::automatic;
}

TEST(verbs_stress, R30_eight_threads_with_two_caches_send_no_stale_bytes) {
  const auto pinned = counted_by_kernel("VmPin");
  const auto seed = static_cast<unsigned>(test_seed());
  outcome all;
  {
    const rdma_device device;
    const auto who = monitor_here();
    cache_type first(device.registrar(), {.monitor = who}),
        second(device.registrar(), {.max_count = 12, .monitor = who});
    const auto told = who == monitor_choice::manual ? both_caches{&first, &second} : both_caches{};
    std::cout << "watched by " << first.monitors() << '\n';
    const auto until = std::chrono::steady_clock::now() + stress_time();
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 0; i < 8; ++i)
        threads.emplace_back([&, i] { move(i % 2 == 0 ? first : second, told, device, seed + i, until, all); });
    }
    EXPECT_GT(first.statistics().hits + second.statistics().hits, 0U);
    EXPECT_GT(first.statistics().misses_invalidated + second.statistics().misses_invalidated, 0U);
  }
  std::cout << all.transfers << " transfers\n";
  EXPECT_GT(all.transfers, 0U);
  EXPECT_EQ(all.wrong, 0U);
  EXPECT_EQ(all.refused, 0U);
  EXPECT_EQ(counted_by_kernel("VmPin"), pinned);
}

}  // namespace
}  // namespace pinfold::testing::verbs_stress_test

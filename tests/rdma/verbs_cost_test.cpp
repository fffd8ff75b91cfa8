// SPDX-License-Identifier: BSD-3-Clause
// The table of docs/use/rdma.md: an acquire and its release, registering each time and cached. In an emulated machine
// only the table's shape means anything.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace pinfold::testing::verbs_cost_test {
namespace {

using cache_type = pinfold::cache<verbs_registrar>;

// Returns the median of that many rounds, in microseconds.
double cost(cache_type& cache, const void* memory, std::size_t bytes, int rounds) {
  std::vector<double> all;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    auto held = cache.acquire(memory, bytes);
    EXPECT_TRUE(held && held->release());
    all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(all, all.begin() + rounds / 2);
  return all[static_cast<std::size_t>(rounds / 2)];
}

TEST(verbs_cost, R11_a_hit_costs_the_same_for_every_size_and_less_than_registering) {
  const rdma_device device;
  constexpr std::size_t most = std::size_t{16} << 20U;
  auto* const memory = attacks::elsewhere(most);
  std::printf("%10s %16s %10s %8s\n", "bytes", "registered, us", "cached, us", "gain");
  for (std::size_t bytes = 4096; bytes <= most; bytes *= 4) {
    cache_type each(device.registrar(), {.monitor = monitor_choice::none});
    cache_type kept(device.registrar(), {.monitor = monitor_choice::manual});
    const double registered = cost(each, memory, bytes, 51), cached = cost(kept, memory, bytes, 501);
    EXPECT_EQ(each.statistics().opens, 51U);
    EXPECT_EQ(kept.statistics().opens, 1U);
    EXPECT_LT(cached, registered);
    std::printf("%10zu %16.1f %10.2f %7.0fx\n", bytes, registered, cached, registered / cached);
  }
  ::munmap(memory, most);
}

}  // namespace
}  // namespace pinfold::testing::verbs_cost_test

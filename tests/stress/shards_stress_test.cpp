// SPDX-License-Identifier: BSD-3-Clause
// Two threads that register overlapping memory in different shards: no registration stays that another one covers.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/settings.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing::shards_stress_test {
namespace {

constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
constexpr std::uintptr_t mebibyte = std::uintptr_t{1} << 20U;

bool is_live(const entry_info& one) { return one.state == entry_state::live || one.state == entry_state::evicting; }

/// Returns how many live registrations lie within another one.
std::size_t covered_in(const std::vector<entry_info>& all) {
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const entry_info& one) {
    return is_live(one) && std::any_of(all.begin(), all.end(), [&](const entry_info& other) {
             return &one != &other && is_live(other) && other.covered.contains(one.covered);
           });
  }));
}

/// Returns a range that contains the address, of one of the four levels of cells.
range around(std::uintptr_t address, std::uint64_t dice) {
  constexpr std::uintptr_t sizes[] = {4096, 3 * mebibyte, 200 * mebibyte, 9000 * mebibyte};
  const auto bytes = sizes[dice % 4];
  const auto begin = address - dice / 4 % 2 * (bytes / 4 / 4096 * 4096);
  return {begin, begin + bytes};
}

TEST(shards_stress, R23_no_registration_stays_that_one_in_another_shard_covers) {
  auto device = std::make_shared<fake_device>();
  cache all(fake_registrar(device), keeping({.shards = 8}));
  std::mt19937_64 random(test_seed());
  const auto until = std::chrono::steady_clock::now() + stress_time();
  std::array<range, 2> wanted{};
  std::atomic<bool> stop{false};
  std::barrier line(3);
  const auto act = [&](std::size_t which) {
    for (line.arrive_and_wait(); !stop.load(); line.arrive_and_wait()) {
      const auto held = all.acquire(reinterpret_cast<void*>(wanted[which].begin), wanted[which].size());
      EXPECT_TRUE(held);
      line.arrive_and_wait();
    }
  };
  std::jthread first(act, 0U);
  std::jthread second(act, 1U);
  std::uint64_t rounds = 0;
  std::size_t covered = 0;
  for (; std::chrono::steady_clock::now() < until; ++rounds) {
    const auto address = base + random() % mebibyte * 4096;
    for (auto& one : wanted) one = around(address, random());
    line.arrive_and_wait();
    line.arrive_and_wait();  // both have their leases, or had
    covered += covered_in(all.dump());
    if (rounds % 16 == 15) {
      EXPECT_TRUE(all.flush());
    }
  }
  stop = true;
  line.arrive_and_wait();
  first.join();
  second.join();
  EXPECT_EQ(covered, 0U) << "of " << rounds << " rounds";
  EXPECT_TRUE(all.flush());
  EXPECT_EQ(device->misuses, 0U);
  std::printf("%llu rounds\n", static_cast<unsigned long long>(rounds));
}

}  // namespace
}  // namespace pinfold::testing::shards_stress_test

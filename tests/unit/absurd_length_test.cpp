// SPDX-License-Identifier: BSD-3-Clause
// Requests of absurd lengths, and of honest large ones: their cost does not depend on the length (R59).
#include "support/fixtures/local_fixture.hpp"
#include "support/host/process_limits.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

namespace pinfold::testing::absurd_length_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t absurd = std::size_t{1} << 45U;
constexpr std::size_t large = std::size_t{1} << 40U;

std::size_t resident() {
  std::size_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// The cost to this thread: other processes do not count.
struct cost {
  std::chrono::nanoseconds time_before = now();
  std::size_t memory_before = resident();

  static std::chrono::nanoseconds now() {
    timespec spent{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
  }
  void expect_small() const {
    EXPECT_LT(now() - time_before, 3s) << "it was 10 s";
    EXPECT_LT(resident(), memory_before + (std::size_t{16} << 20U)) << "it was 512 MiB";
  }
};

TEST(absurd_length, R59_range_above_the_budget_is_refused_without_a_driver_call) {
  local_fixture f({.max_bytes = 1U << 20U});
  const cost of_all;
  EXPECT_EQ(f.acquire(0x10000, 0x10000 + absurd).error().code, errc::larger_than_budget);
  EXPECT_EQ(f.device->calls, 0U);
  of_all.expect_small();
}

TEST(absurd_length, R59_range_above_the_registrars_limit_is_refused_at_once) {
  local_fixture f;
  f.device->limits.max_bytes = 1U << 30U;
  const cost of_all;
  EXPECT_EQ(f.acquire(0x10000, 0x10000 + absurd).error().code, errc::too_large);
  of_all.expect_small();
}

TEST(absurd_length, R59_range_without_limits_is_refused_by_the_registrar) {
  local_fixture f;
  f.device->fail_opens([](const range&, access_flags) { return std::optional(error{errc::invalid_range}); });
  const cost of_all;
  EXPECT_EQ(f.acquire(0x10000, 0x10000 + absurd).error().code, errc::invalid_range);
  of_all.expect_small();
  EXPECT_EQ(f.device->calls, 1U);
}

TEST(absurd_length, R59_unmapped_memory_is_refused_without_a_driver_call) {
  auto device = std::make_shared<fake_device>();
  pinfold::cache cache(fake_registrar{device}, {.monitor = monitor_choice::hooks});
  if (cache.monitors() != "hooks") GTEST_SKIP() << cache.monitors();
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const cost of_all;
  EXPECT_EQ(cache.acquire(page, absurd).error().code, errc::invalid_range);
  EXPECT_EQ(device->calls, 0U);
  of_all.expect_small();
  EXPECT_TRUE(cache.acquire(page, 4096));
  ::munmap(page, 4096);
}

TEST(absurd_length, R59_mapped_terabyte_is_registered_at_once) {
  void* const memory = ::mmap(nullptr, large, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for it";
  auto device = std::make_shared<fake_device>();
  pinfold::cache cache(fake_registrar{device}, {.monitor = monitor_choice::hooks});
  const cost of_all;
  {
    auto lease = cache.acquire(memory, large);
    EXPECT_TRUE(lease);
  }
  if (cache.monitors() == "hooks") {
    EXPECT_TRUE(cache.find(memory, large));
  }
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(device->open_count(), 0U);
  of_all.expect_small();
  ::munmap(memory, large);
}

// A request of any length that no entry serves is not compared with all the entries that it overlaps.
TEST(absurd_length, R59_find_of_a_huge_range_costs_no_more_than_find_of_a_page) {
  local_fixture f;
  constexpr std::uintptr_t base = 0x10000000;
  for (std::uintptr_t i = 0; i < 20'000; ++i) ASSERT_TRUE(f.acquire(base + i * 0x10000, base + i * 0x10000 + 0x1000));
  auto least = std::chrono::nanoseconds::max();
  for (int tries = 0; tries < 20 && least >= 100ms; ++tries) {
    const auto start = cost::now();
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(f.cached(base - 1, base + absurd));
    least = std::min(least, cost::now() - start);
  }
  EXPECT_LT(least, 100ms) << "20 million comparisons take longer";
}

}  // namespace
}  // namespace pinfold::testing::absurd_length_test

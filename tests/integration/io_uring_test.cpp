// SPDX-License-Identifier: BSD-3-Clause
// The buffer table: how many system calls batches take, which requests are refused and why, and what a full table does.
// tests/conformance checks the kernel's own count of pinned memory.
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::io_uring_test {
namespace {

using cache_type = pinfold::cache<io_uring_registrar>;

TEST(io_uring_cache, R28_full_table_evicts_and_registers) {
  test_ring ring;
  cache_type cache(registrar_on(ring, 8), keeping());
  std::vector<std::vector<std::byte>> buffers;
  for (unsigned i = 0; i < 40; ++i) buffers.emplace_back(65536, static_cast<std::byte>(i));
  for (const auto& one : buffers) ASSERT_TRUE(cache.acquire(one));
  EXPECT_EQ(cache.statistics().open, 8U);
  EXPECT_EQ(cache.statistics().evicted, 32U);
  std::vector<cache_type::lease> held;
  for (unsigned i = 0; i < 8; ++i) held.push_back(std::move(*cache.acquire(buffers[i])));
  EXPECT_EQ(cache.acquire(buffers[20]).error().code, errc::out_of_resources);
}

/// Buffers of a page each, a page apart, as many as this user may pin.
class small_buffers {
 public:
  small_buffers() {
    memory_ = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::madvise(memory_, bytes(), MADV_NOHUGEPAGE);  // huge pages are charged as a whole
    std::memset(memory_, 1, bytes());              // the measurement excludes page faults
    for (std::size_t i = 0; i < count; ++i) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory_) + 2 * i * 4096;
      ranges.push_back({begin, begin + 4096});
    }
  }
  small_buffers(const small_buffers&) = delete;
  small_buffers& operator=(const small_buffers&) = delete;
  ~small_buffers() { ::munmap(memory_, bytes()); }

  const std::size_t count = ::geteuid() == 0 ? 10'000 : 1'000;  // an ordinary user may not pin 40 MB
  std::vector<range> ranges;

 private:
  [[nodiscard]] std::size_t bytes() const { return 2 * count * 4096; }
  void* memory_;
};

TEST(io_uring_cache, R26_batch_fills_many_slots_with_one_system_call) {
  test_ring ring;
  cache_type cache(registrar_on(ring, 16384), keeping());
  const small_buffers buffers;
  const auto before = cache.backend().calls();
  auto batch = cache.acquire_batch(buffers.ranges, local_access, {.workers = 1});
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_LE(cache.backend().calls() - before, buffers.count / 64 + 1);
}

TEST(io_uring_cache, R26_batch_is_not_slower_than_one_call_per_buffer) {
  using clock = std::chrono::steady_clock;
  const small_buffers buffers;
  auto single = clock::duration::max();
  auto batched = clock::duration::max();
  const auto ratio = [&] { return std::chrono::duration<double>(single) / std::chrono::duration<double>(batched); };
  // Other processes interrupt most rounds on a busy machine.
  for (int round = 0; round < 5 || (round < 200 && ratio() <= 0.8); ++round) {
    test_ring ring;
    cache_type cache(registrar_on(ring, 16384), keeping());
    std::vector<cache_type::lease> leases;
    auto start = clock::now();
    for (const range& one : buffers.ranges)
      leases.push_back(std::move(*cache.acquire(reinterpret_cast<void*>(one.begin), one.size())));
    single = std::min(single, clock::now() - start);
    leases.clear();
    ASSERT_TRUE(cache.flush());
    start = clock::now();
    auto batch = cache.acquire_batch(buffers.ranges, local_access, {.workers = 1});
    batched = std::min(batched, clock::now() - start);
    ASSERT_TRUE(batch) << describe(batch.error());
  }
  std::printf("%zu buffers of 4 KiB: %.1f times as fast in a batch\n", buffers.count, ratio());
  EXPECT_GT(ratio(), 0.8);
}

TEST(io_uring_registrar, R26_fragmented_table_still_takes_few_system_calls) {
  test_ring ring;
  auto registrar = registrar_on(ring, 512);
  const small_buffers buffers;
  std::vector<result<io_uring_registrar::registration_type>> made(512);
  registrar.open_many(std::span(buffers.ranges).first(512), local_access, made);
  for (std::size_t i = 0; i < 256; i += 2) ASSERT_TRUE(registrar.close(*made[i]));
  for (std::size_t i = 400; i < 500; ++i) ASSERT_TRUE(registrar.close(*made[i]));
  const auto before = registrar.calls();
  std::vector<result<io_uring_registrar::registration_type>> more(64);
  registrar.open_many(std::span(buffers.ranges).first(64), local_access, more);
  for (const auto& one : more) EXPECT_TRUE(one);
  EXPECT_EQ(registrar.calls() - before, 1U);
}

TEST(io_uring_registrar, R26_bad_ranges_fail_alone) {
  test_ring ring;
  auto registrar = registrar_on(ring, 64);
  small_buffers buffers;
  auto ranges = std::vector<range>(buffers.ranges.begin(), buffers.ranges.begin() + 40);
  ranges[0] = {0, 0};
  ranges[7] = {64, 128};  // not mapped: the kernel refuses it
  ranges[8].end = ranges[8].begin;
  std::vector<result<io_uring_registrar::registration_type>> made(ranges.size());
  registrar.open_many(ranges, local_access, made);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const bool bad = i == 0 || i == 7 || i == 8;
    ASSERT_EQ(made[i].has_value(), !bad) << i;
    if (bad) {
      EXPECT_EQ(made[i].error().code, errc::invalid_range);
    }
  }
  EXPECT_LE(registrar.calls(), 4U);
}

// A ring on which only its owner's thread may register.
struct own_ring {
  ::io_uring ring{};
  int made;
  own_ring() : made(::io_uring_queue_init(8, &ring, IORING_SETUP_SINGLE_ISSUER)) {}
  own_ring(const own_ring&) = delete;
  own_ring& operator=(const own_ring&) = delete;
  ~own_ring() {
    if (made == 0) ::io_uring_queue_exit(&ring);
  }
};

TEST(io_uring_registrar, another_threads_ring_is_not_permitted) {
  own_ring one;
  if (one.made != 0) GTEST_SKIP() << "no SINGLE_ISSUER before Linux 6.0";
  std::vector<std::byte> buffer(4096);
  const auto memory = *range::of(reinterpret_cast<std::uintptr_t>(buffer.data()), buffer.size());
  std::thread([&] {
    auto refused = io_uring_registrar::create(&one.ring);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::not_permitted) << describe(refused.error());
    EXPECT_EQ(refused.error().native, EEXIST);
  }).join();
  auto registrar = io_uring_registrar::create(&one.ring);
  ASSERT_TRUE(registrar) << describe(registrar.error());
  auto made = registrar->open(memory, local_access);
  ASSERT_TRUE(made);
  std::thread([&] {
    EXPECT_EQ(registrar->open(memory, local_access).error().code, errc::not_permitted);
    EXPECT_EQ(registrar->close(*made).error().code, errc::not_permitted);
  }).join();
  EXPECT_TRUE(registrar->close(*made)) << "and nothing has changed";
  EXPECT_EQ(registrar->close(*made).error().code, errc::invalid_argument);
}

TEST(io_uring_registrar, refusals_return_the_reason) {
  EXPECT_EQ(io_uring_registrar::create(nullptr).error().code, errc::invalid_argument);
  test_ring ring;
  auto first = registrar_on(ring);
  EXPECT_EQ(io_uring_registrar::create(ring.get()).error().code, errc::in_use_conflict);
  EXPECT_EQ(first.close({99}).error().code, errc::invalid_argument);
  const auto* const text = "constant";
  auto constant = range::of(reinterpret_cast<std::uintptr_t>(text), 8);
  auto refused = first.open(*constant, local_access);
  ASSERT_FALSE(refused) << "memory that cannot be written";
  EXPECT_EQ(refused.error().native, EFAULT);
}

// More slots would make huge pages expensive: the kernel searches the whole table for them.
TEST(io_uring_registrar, table_has_1024_slots_by_default) {
  test_ring ring;
  EXPECT_EQ(registrar_on(ring).slots(), 1024U);
  EXPECT_EQ(registrar_on(ring, 7).slots(), 7U);
}

TEST(io_uring_registrar, table_takes_the_number_of_slots_that_the_kernel_allows) {
  test_ring ring;
  for (const unsigned wanted : {0U, 1U << 20U, 20'000U, 16'385U, UINT32_MAX}) {
    auto made = io_uring_registrar::create(ring.get(), {.slots = wanted});
    ASSERT_TRUE(made) << describe(made.error());
    EXPECT_EQ(made->slots(), 16384U) << wanted;
  }
}

}  // namespace
}  // namespace pinfold::testing::io_uring_test

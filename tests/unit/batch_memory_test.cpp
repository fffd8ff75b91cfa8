// SPDX-License-Identifier: BSD-3-Clause
// A batch that runs out of memory at each of its allocations: R26.
#include "support/fixtures/c_fixture.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/sanitized.hpp"

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

// Counts this thread's allocations, so that those of other threads do not matter.
[[maybe_unused]] thread_local constinit int allocations_left = -1;

[[maybe_unused]] void* allocate(std::size_t bytes) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return std::malloc(bytes);
}

}  // namespace

#if !PINFOLD_SANITIZED
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const got = allocate(bytes);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace pinfold::testing::batch_memory_test {
namespace {

using namespace std::chrono_literals;

std::vector<range> blocks(std::uintptr_t count) {
  std::vector<range> made;
  for (std::uintptr_t i = 0; i < count; ++i) made.push_back({0x100000 + i * 0x10000, 0x100000 + i * 0x10000 + 64});
  return made;
}

/// A registrar that allocates nothing.
struct counting_registrar {
  static constexpr const char* name = "counting";
  struct registration_type {
    std::uint64_t unused;
  };
  std::atomic<int>* live;

  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = 1}; }
  [[nodiscard]] result<registration_type> open(range, access_flags) noexcept { return ++*live, registration_type{}; }
  [[nodiscard]] result<void> close(const registration_type&) noexcept { return --*live, result<void>(); }
};

TEST(batch_memory, R26_batch_that_runs_out_of_memory_holds_no_lease) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has an operator new of its own";
  const auto all = blocks(20);
  int failures = 0;
  for (int left = 0; left < 100; ++left) {
    std::atomic<int> live{0};
    pinfold::cache cache(counting_registrar{&live}, keeping({.drain_timeout = 0s}));
    for (std::size_t i = 0; i < 10; ++i) ASSERT_TRUE(cache.acquire(reinterpret_cast<void*>(all[i].begin), 64));
    allocations_left = left;
    auto got = cache.acquire_batch(all, local_access, {.workers = 2});
    allocations_left = -1;
    if (!got) {
      EXPECT_EQ(got.error().code, errc::out_of_resources) << left;
      EXPECT_EQ(cache.statistics().leases_now, 0U) << "allocation " << left;
      ++failures;
    }
    got = {};
    EXPECT_TRUE(cache.quiesce()) << "allocation " << left;
    EXPECT_EQ(live, 0);
    expect_counters_add_up(cache.statistics());
    if (failures == left) break;  // this batch got all the memory it wanted
  }
  EXPECT_GT(failures, 3);
}

TEST(batch_memory, R26_batch_of_the_C_interface_that_runs_out_of_memory_holds_no_lease) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has an operator new of its own";
  std::vector<pinfold_range> all;
  for (const auto& one : blocks(20)) all.push_back({one.begin, one.size()});
  pinfold_registrar table{};
  table.size = sizeof table;
  table.name = "counting";
  table.granularity = 1;
  table.open = [](void* live, const pinfold_open_request*, pinfold_registration*, pinfold_error*) {
    ++*static_cast<std::atomic<int>*>(live);
    return int{PINFOLD_OK};
  };
  table.close = [](void* live, const pinfold_registration*, pinfold_error*) {
    --*static_cast<std::atomic<int>*>(live);
    return int{PINFOLD_OK};
  };
  int failures = 0;
  for (int left = 0; left < 100; ++left) {
    std::atomic<int> live{0};
    const auto options = c_options();
    pinfold_cache* cache = nullptr;
    ASSERT_EQ(pinfold_create(&table, &live, &options, &cache), PINFOLD_OK);
    std::vector<pinfold_lease> leases(all.size());
    allocations_left = left;
    const int code = pinfold_acquire_batch(cache, all.data(), all.size(), c_local_access, nullptr, leases.data());
    allocations_left = -1;
    if (code != PINFOLD_OK) {
      EXPECT_EQ(code, PINFOLD_E_OUT_OF_RESOURCES) << left;
      EXPECT_EQ(leases[0].pin, 0U);
      ++failures;
    }
    EXPECT_EQ(pinfold_release_batch(leases.data(), leases.size()), PINFOLD_OK);
    EXPECT_EQ(pinfold_quiesce(cache), PINFOLD_OK) << "allocation " << left;
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
    EXPECT_EQ(live, 0);
    if (failures == left) break;  // this batch got all the memory it wanted
  }
  EXPECT_GT(failures, 3);
}

}  // namespace
}  // namespace pinfold::testing::batch_memory_test

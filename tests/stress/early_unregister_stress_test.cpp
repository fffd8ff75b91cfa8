// SPDX-License-Identifier: BSD-3-Clause
// One thread unmaps memory and maps it again, while another registers it all the time: a race in the program, of which
// nothing may stay in the cache (R30). A hook that took the memory out of userfaultfd's watch after posting the event
// would leave unwatched registrations behind.
#include "support/host/process_limits.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <sys/mman.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::early_unregister_stress_test {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t bytes = 4 * page_bytes;

std::uint64_t* place() { return reinterpret_cast<std::uint64_t*>(quiet_address); }

/// Registers the content of the memory, which identifies the memory. Returns an error for unmapped memory.
struct content_registrar {
  static constexpr const char* name = "content";
  struct registration_type {
    std::uint64_t content;
  };
  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = page_bytes}; }
  [[nodiscard]] static result<registration_type> open(range memory, access_flags) noexcept {
    std::uint64_t content = 0;
    const iovec here{&content, sizeof content};
    const iovec there{reinterpret_cast<void*>(memory.begin), sizeof content};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == sizeof content) return registration_type{content};
    return fail_errno(errc::invalid_range, EFAULT, "no memory there");
  }
  [[nodiscard]] static result<void> close(const registration_type&) noexcept { return {}; }
};

bool map() {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE;
  return ::mmap(place(), bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

TEST(early_unregister, R30_memory_registered_during_its_munmap_is_not_kept) {
  pinfold::cache<content_registrar> cache(content_registrar{},
                                          {.monitor = monitor_choice::hooks | monitor_choice::userfaultfd});
  if (cache.monitors().starts_with("none")) GTEST_SKIP() << cache.monitors();
  watchdog guard([] {});
  std::atomic<std::uint64_t> leases{0};
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      if (cache.acquire(place(), bytes)) leases.fetch_add(1, std::memory_order_relaxed);
  });
  std::uint64_t stale = 0;
  std::uint64_t round = 1;
  for (const auto until = std::chrono::steady_clock::now() + stress_time();
       std::chrono::steady_clock::now() < until || leases == 0; ++round) {  // the other thread may begin late
    ASSERT_TRUE(map());
    std::atomic_ref(*place()).store(round);
    // 0: registered between the map and the store, which is right as well.
    if (const auto held = cache.acquire(place(), bytes); held && held->registration().content != round)
      stale += held->registration().content != 0 ? 1 : 0;
    ASSERT_EQ(::munmap(place(), bytes), 0);
    guard.beat();
  }
  other.request_stop();
  other.join();
  std::printf("%llu rounds, %llu leases beside, %llu stale\n", static_cast<unsigned long long>(round),
              static_cast<unsigned long long>(leases.load()), static_cast<unsigned long long>(stale));
  EXPECT_EQ(stale, 0U);
  EXPECT_GT(leases.load(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::early_unregister_stress_test

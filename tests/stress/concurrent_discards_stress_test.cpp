// SPDX-License-Identifier: BSD-3-Clause
// Several threads discard memory at the same time, each a buffer of its own, and acquire it again at once: R55. One
// read of userfaultfd can release several callers, so each of them has to find its own event, in its own program order,
// without any help from a probe (`strict`).
#include "support/host/process_limits.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ostream>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::concurrent_discards_stress_test {
namespace {

constexpr std::size_t page = 4096;

/// Registers the number of discards that the calling thread has made: a lower number means older pages.
struct counting_registrar {
  static constexpr const char* name = "counting";
  struct registration_type {
    std::uint64_t discards;
  };
  static inline thread_local std::uint64_t discards = 0;

  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = page}; }
  [[nodiscard]] static result<registration_type> open(range, access_flags) noexcept {
    return registration_type{discards};
  }
  [[nodiscard]] static result<void> close(const registration_type&) noexcept { return {}; }
};

using discard_function = bool (*)(void* at);
bool discard_through_libc(void* at) { return ::madvise(at, page, MADV_DONTNEED) == 0; }
bool discard_inline(void* at) {
  return has_raw_calls ? raw_call(SYS_madvise, at, page, MADV_DONTNEED) == 0 : discard_through_libc(at);
}
bool replace_inline(void* at) {
  if (!has_raw_calls) return false;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return raw_call(SYS_munmap, at, page) == 0 && ::mmap(at, page, PROT_READ | PROT_WRITE, flags, -1, 0) == at;
}

struct shape {
  const char* name;
  monitor_choice monitor;
  bool strict;
  discard_function discard;
  unsigned threads;
};
void PrintTo(const shape& one, std::ostream* to) { *to << one.name; }

const std::vector<shape> shapes{
    {"automatic_inline_two", monitor_choice::automatic, false, discard_inline, 2},
    {"automatic_inline_four", monitor_choice::automatic, false, discard_inline, 4},
    {"automatic_inline_unmaps", monitor_choice::automatic, false, replace_inline, 2},
    {"userfaultfd_inline_two", monitor_choice::userfaultfd, false, discard_inline, 2},
    {"userfaultfd_libc_two", monitor_choice::userfaultfd, false, discard_through_libc, 2},
    {"userfaultfd_libc_eight", monitor_choice::userfaultfd, false, discard_through_libc, 8},
    {"strict_userfaultfd", monitor_choice::userfaultfd, true, discard_inline, 3},
};

class concurrent_discards : public ::testing::TestWithParam<shape> {
 protected:
  struct counts {
    std::atomic<std::uint64_t> rounds{0}, stale{0}, refused{0};
  };

  // Each thread's pages lie apart, so that no two mappings touch.
  void use_own_page(pinfold::cache<counting_registrar>& cache, unsigned number, const std::stop_token& stop) {
    void* const own = ::mmap(reinterpret_cast<void*>(quiet_address + number * 64 * page), page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own == MAP_FAILED) return;
    counting_registrar::discards = 0;
    while (!stop.stop_requested()) {
      *static_cast<volatile char*>(own) = 1;
      const auto held = cache.acquire(own, page);
      if (!held)
        ++all_.refused;
      else if (held->registration().discards != counting_registrar::discards)
        ++all_.stale;
      ++all_.rounds;
      if (!GetParam().discard(own)) ++all_.refused;
      ++counting_registrar::discards;
    }
    ::munmap(own, page);
  }

  counts all_;
};

TEST_P(concurrent_discards, R55_each_thread_observes_its_own_discard) {
  if (GetParam().discard != discard_through_libc && !has_raw_calls) GTEST_SKIP() << "no inline system calls here";
  pinfold::cache<counting_registrar> cache({}, {.monitor = GetParam().monitor, .strict = GetParam().strict});
  if (cache.monitors().find("userfaultfd") == std::string::npos || cache.monitors().starts_with("none"))
    GTEST_SKIP() << cache.monitors();
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < GetParam().threads; ++i)
      threads.emplace_back([&, i](const std::stop_token& stop) { use_own_page(cache, i, stop); });
    std::this_thread::sleep_for(std::chrono::milliseconds(stress_time()) / 4);
    while (all_.rounds == 0) std::this_thread::yield();  // the threads may begin late
  }
  std::printf("%s (%s): %llu stale of %llu\n", GetParam().name, cache.monitors().c_str(),
              static_cast<unsigned long long>(all_.stale), static_cast<unsigned long long>(all_.rounds));
  EXPECT_GT(all_.rounds, 0U);
  EXPECT_EQ(all_.refused, 0U);
  EXPECT_EQ(all_.stale, 0U);
}

INSTANTIATE_TEST_SUITE_P(by, concurrent_discards, ::testing::ValuesIn(shapes),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace pinfold::testing::concurrent_discards_stress_test

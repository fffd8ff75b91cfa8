// SPDX-License-Identifier: BSD-3-Clause
// A request is merged with a registration whose other page another thread discards at the same time. The program makes
// no mistake: neither thread uses the other's page. So the merged registration must not serve the discarded page.
#include "support/host/process_limits.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/settings.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ostream>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::merged_discards_stress_test {
namespace {

constexpr std::size_t page = 4096;

/// The first word of a page: which of the program's pages it is.
std::atomic_ref<std::uint64_t> word_of(std::uintptr_t at) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}

/// Reads as a device does: without instrumentation, because ThreadSanitizer takes the mapping of the page by another
/// thread for a write.
__attribute__((no_sanitize("thread"))) std::uint64_t read_by_device(std::uintptr_t at) noexcept {
  return *reinterpret_cast<const volatile std::uint64_t*>(at);
}

/// Registers the words of the last page. A page that the program has not written yet has 0.
struct reading_registrar {
  static constexpr const char* name = "reading";
  struct registration_type {
    std::uint64_t last_page;
  };
  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = page}; }
  static inline std::atomic<std::uint64_t> merged{0};
  [[nodiscard]] static result<registration_type> open(range what, access_flags access) noexcept {
    if (what.size() > page && contains_all(access, local_access)) ++merged;
    return registration_type{read_by_device(what.end - page)};
  }
  [[nodiscard]] static result<void> close(const registration_type&) noexcept { return {}; }
};

using discard_function = bool (*)(void* at);
bool discard_through_libc(void* at) { return ::madvise(at, page, MADV_DONTNEED) == 0; }
bool discard_by_syscall(void* at) { return ::syscall(SYS_madvise, at, page, MADV_DONTNEED) == 0; }
bool replace_through_libc(void* at) {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return ::mmap(at, page, PROT_READ | PROT_WRITE, flags, -1, 0) == at;
}
bool discard_inline(void* at) { return raw_call(SYS_madvise, at, page, MADV_DONTNEED) == 0; }
bool announce_and_discard_inline(void* at) {
  announce_gone(at, page);
  return discard_inline(at);
}
bool replace_inline(void* at) {
  constexpr long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return raw_call(SYS_mmap, at, page, PROT_READ | PROT_WRITE, flags, -1) == reinterpret_cast<long>(at);
}

struct shape {
  const char* name;
  monitor_choice monitor;
  discard_function discard;
};
void PrintTo(const shape& one, std::ostream* to) { *to << one.name; }

const std::vector<shape> shapes{
    {"automatic_libc_discards", monitor_choice::automatic, discard_through_libc},
    {"automatic_syscall_discards", monitor_choice::automatic, discard_by_syscall},
    {"automatic_inline_discards", monitor_choice::automatic, discard_inline},
    {"automatic_libc_replaces", monitor_choice::automatic, replace_through_libc},
    {"automatic_inline_replaces", monitor_choice::automatic, replace_inline},
    {"hooks_libc_discards", monitor_choice::hooks | monitor_choice::manual, discard_through_libc},
    {"hooks_libc_replaces", monitor_choice::hooks | monitor_choice::manual, replace_through_libc},
    {"bpf_inline_discards", monitor_choice::bpf, discard_inline},
    {"manual_inline_discards", monitor_choice::manual, announce_and_discard_inline},
};

class merged_discards : public ::testing::TestWithParam<shape> {
 protected:
  using cache_type = pinfold::cache<reading_registrar>;
  static constexpr std::uintptr_t first = quiet_address, second = first + page;

  void SetUp() override {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    auto* const at = reinterpret_cast<void*>(first);
    ASSERT_EQ(::mmap(at, 2 * page, PROT_READ | PROT_WRITE, flags, -1, 0), at);
  }
  void TearDown() override { ::munmap(reinterpret_cast<void*>(first), 2 * page); }

  /// Gives both pages one registration, without the right to write.
  void register_both(cache_type& cache) {
    cache.invalidate(reinterpret_cast<void*>(first), 2 * page);
    word_of(second).store(++written_);
    if (!cache.acquire(reinterpret_cast<void*>(first), 2 * page, access_flags::local_read)) ++refused_;
  }

  void discard_and_use(cache_type& cache) {
    auto* const own = reinterpret_cast<void*>(second);
    const auto before = written_;
    if (!GetParam().discard(own)) ++refused_;
    word_of(second).store(++written_);
    const auto held = cache.acquire(own, page, access_flags::local_read);
    if (!held) {
      ++refused_;
    } else if (held->registration().last_page == before) {
      ++stale_;
    }
  }

  /// Lets the threads meet in each round at another place.
  static void spin(std::uint64_t times) {
    for (std::uint64_t i = 0; i < 8 * times; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void wait_until(const std::atomic<std::uint64_t>& is, std::uint64_t wanted) {
    for (int tries = 0; is.load() != wanted; ++tries)
      if (tries > 1000) ::sched_yield();
  }

  void request_first_page(cache_type& cache) {
    for (std::uint64_t round = 1;; ++round) {
      wait_until(begun_, round);
      if (ended_) return;
      answered_ = round;
      spin(round % 61);
      if (!cache.acquire(reinterpret_cast<void*>(first), page, access_flags::local_write)) ++refused_;
      done_ = round;
    }
  }

  void run(cache_type& cache) {
    constexpr std::uint64_t least_rounds = 32;
    std::jthread beside([&] { request_first_page(cache); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(stress_time()) / 4;
    while (rounds_ < least_rounds || std::chrono::steady_clock::now() < end) {
      register_both(cache);
      begun_ = ++rounds_;
      wait_until(answered_, rounds_);                     // it runs now
      if (rounds_ % 16 == 0) wait_until(done_, rounds_);  // so that there are merged ones, however slow merging is here
      spin(rounds_ % 53);
      discard_and_use(cache);
      wait_until(done_, rounds_);
    }
    ended_ = true;
    ++begun_;
  }

  std::atomic<std::uint64_t> begun_{0}, answered_{0}, done_{0};  // rounds
  std::atomic<bool> ended_{false};
  std::uint64_t written_ = 0, rounds_ = 0, stale_ = 0;
  std::atomic<std::uint64_t> refused_{0};
};

TEST_P(merged_discards, R62_a_merged_registration_never_has_a_page_that_goes) {
  if (!has_raw_calls) GTEST_SKIP() << "no inline system calls here";
  reading_registrar::merged = 0;
  cache_type cache({}, {.merge = merge_policy::rights, .monitor = GetParam().monitor});
  if (cache.monitors().starts_with("none")) GTEST_SKIP() << cache.monitors();
  run(cache);
  const auto merged = reading_registrar::merged.load();
  std::printf("%s (%s): %llu stale of %llu, %llu merged\n", GetParam().name, cache.monitors().c_str(),
              static_cast<unsigned long long>(stale_), static_cast<unsigned long long>(rounds_),
              static_cast<unsigned long long>(merged));
  EXPECT_GT(merged, 0U);
  EXPECT_EQ(refused_, 0U);
  EXPECT_EQ(stale_, 0U);
}

INSTANTIATE_TEST_SUITE_P(by, merged_discards, ::testing::ValuesIn(shapes),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace pinfold::testing::merged_discards_stress_test

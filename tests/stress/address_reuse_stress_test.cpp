// SPDX-License-Identifier: BSD-3-Clause
// One thread unmaps, another gets the address as soon as it can, and asks the cache: R30, for a long time.
#include "support/host/process_limits.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/monitors/announce.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <ostream>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::address_reuse_stress_test {
namespace {

constexpr std::size_t bytes = 4 * 4096;

void* at() { return reinterpret_cast<void*>(quiet_address); }

/// Counts how often the memory was mapped, and registers that count: a lease with a lower count has old pages.
struct version_registrar {
  static constexpr const char* name = "version";
  struct registration_type {
    std::uint64_t version;
  };
  const std::atomic<std::uint64_t>* version;

  [[nodiscard]] static registrar_limits limits() noexcept { return {.granularity = 4096}; }
  [[nodiscard]] result<registration_type> open(range, access_flags) const noexcept {
    return registration_type{version->load()};
  }
  [[nodiscard]] static result<void> close(const registration_type&) noexcept { return {}; }
};

bool map() {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE;
  return ::mmap(at(), bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

using unmap_function = bool (*)();
bool unmap() { return ::munmap(at(), bytes) == 0; }
bool unmap_inline() { return (has_raw_calls ? raw_call(SYS_munmap, at(), bytes) : ::munmap(at(), bytes)) == 0; }
bool say_so_and_unmap() {
  announce_gone(at(), bytes);
  return unmap();
}

struct protocol {
  const char* name;
  monitor_choice monitor;
  bool strict;
  unmap_function unmap;
  bool exact;                       ///< no lease may be stale; otherwise ten stale leases end the run
  bool announces_too_late = false;  ///< announces the unmap when the other thread has the memory
};
void PrintTo(const protocol& one, std::ostream* to) { *to << one.name; }

const std::vector<protocol> protocols{
    {"explicit_before", monitor_choice::manual, false, say_so_and_unmap, true},
    {"hooks", monitor_choice::hooks | monitor_choice::manual, false, unmap, true},
    {"automatic", monitor_choice::automatic, false, unmap, true},
    {"strict_userfaultfd", monitor_choice::userfaultfd, true, unmap_inline, true},
    {"bpf", monitor_choice::bpf, false, unmap_inline, true},
    {"strict_automatic", monitor_choice::automatic, true, unmap_inline, true},
    {"relaxed_userfaultfd", monitor_choice::userfaultfd, false, unmap_inline, false},
};

enum class placement : std::uint8_t { one_cpu, two_cpus };

/// Returns the CPUs that the test may use.
const cpu_set_t& all_cpus() {
  static const cpu_set_t all = [] {
    cpu_set_t mask;
    ::sched_getaffinity(0, sizeof mask, &mask);
    return mask;
  }();
  return all;
}

/// Keeps the calling thread, and the threads that it starts, on the first or second of those CPUs.
void stay_on(int which) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all_cpus()) && which-- == 0) CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

class race {
 public:
  race(const protocol& how, placement where)
      : how_(how),
        where_(where),
        cache_(version_registrar{&version_}, {.monitor = how.monitor, .strict = how.strict}) {}

  [[nodiscard]] std::string monitors() const { return cache_.monitors(); }

  struct outcome {
    std::uint64_t stale = 0;  ///< leases on an old registration, given to the thread that has the memory now
    std::uint64_t rounds = 0;
  };

  /// Runs at most that many rounds, and not much longer than tests are to take. Ends early once an inexact protocol has
  /// shown enough stale leases.
  outcome run(std::uint64_t most_rounds) {
    const auto until = std::chrono::steady_clock::now() + stress_time(4);
    stay_on(0);
    if (!map()) throw std::runtime_error("cannot map the memory");
    look();
    std::jthread other([this](const std::stop_token& stop) { reuse(stop); });
    outcome seen;
    const auto enough = [&] { return std::chrono::steady_clock::now() >= until || (!how_.exact && seen.stale >= 10); };
    while (seen.rounds == 0 || (seen.rounds < most_rounds && !enough())) {
      turn_.store(theirs, std::memory_order_release);
      if (!how_.unmap()) throw std::runtime_error("cannot unmap the memory");
      while (turn_.load(std::memory_order_acquire) == theirs) ::sched_yield();
      if (how_.announces_too_late) {
        announce_gone(at(), bytes);
        look();  // registers the memory that the next round unmaps
      }
      guard_.beat();
      ++seen.rounds;
      seen.stale = stale_;
    }
    other.request_stop();
    other.join();
    unmap();
    ::sched_setaffinity(0, sizeof(cpu_set_t), &all_cpus());
    EXPECT_EQ(refused_, 0U);
    return seen;
  }

 private:
  static constexpr int ours = 0, theirs = 1;

  void reuse(const std::stop_token& stop) {
    stay_on(where_ == placement::two_cpus ? 1 : 0);
    while (!stop.stop_requested()) {
      if (turn_.load(std::memory_order_acquire) == ours) {
        ::sched_yield();
        continue;
      }
      for (int tries = 1; !map(); ++tries) {
        if (tries % 16 == 0) ::sched_yield();                          // this thread may be alone on this CPU
        for (volatile int pause = 0; pause < 200;) pause = pause + 1;  // the unmapping thread needs the kernel's lock
      }
      version_.fetch_add(1);
      look();
      turn_.store(ours, std::memory_order_release);
    }
  }

  void look() {
    const auto held = cache_.acquire(at(), bytes);
    if (!held) {
      ++refused_;
    } else if (held->registration().version != version_.load()) {
      ++stale_;
    }
  }

  const protocol& how_;
  placement where_;
  std::atomic<std::uint64_t> version_{0};
  pinfold::cache<version_registrar> cache_;
  std::atomic<int> turn_{ours};
  std::uint64_t stale_ = 0, refused_ = 0;  // written by the thread that has the turn
  watchdog guard_{[] {}};
};

std::uint64_t rounds() { return model_steps() / (sanitized ? 10 : 1); }

bool has_two_cpus() { return CPU_COUNT(&all_cpus()) > 1; }

race::outcome outcome_of(const protocol& how, placement where, std::string& monitors) {
  race trial(how, where);
  monitors = trial.monitors();
  if (monitors.starts_with("none")) return {};
  const auto seen = trial.run(rounds());
  std::printf("%s (%s), %s: %llu stale of %llu\n", how.name, monitors.c_str(),
              where == placement::one_cpu ? "one CPU" : "two CPUs", static_cast<unsigned long long>(seen.stale),
              static_cast<unsigned long long>(seen.rounds));
  return seen;
}

class address_reuse : public ::testing::TestWithParam<std::tuple<protocol, placement>> {};

TEST_P(address_reuse, R30_no_stale_registration_is_returned_for_a_reused_address) {
  const auto& [how, where] = GetParam();
  if (where == placement::two_cpus && !has_two_cpus()) GTEST_SKIP() << "only one CPU";
  std::string monitors;
  const auto [stale, rounds] = outcome_of(how, where, monitors);
  if (monitors.starts_with("none")) GTEST_SKIP() << monitors;
  EXPECT_GT(rounds, 0U);
  EXPECT_TRUE(stale == 0 || !how.exact) << stale;
}

INSTANTIATE_TEST_SUITE_P(by, address_reuse,
                         ::testing::Combine(::testing::ValuesIn(protocols),
                                            ::testing::Values(placement::one_cpu, placement::two_cpus)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) +
                                  (std::get<1>(one.param) == placement::one_cpu ? "_one_cpu" : "_two_cpus");
                         });

// The other tests of this file can fail.
TEST(address_reuse, announcement_after_the_call_gives_stale_registrations) {
  const protocol naive{"told afterwards", monitor_choice::manual, false, unmap, false, true};
  std::string monitors;
  EXPECT_GT(outcome_of(naive, placement::one_cpu, monitors).stale, 0U);
}

}  // namespace
}  // namespace pinfold::testing::address_reuse_stress_test

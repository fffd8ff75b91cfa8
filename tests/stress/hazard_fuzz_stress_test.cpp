// SPDX-License-Identifier: BSD-3-Clause
// Random events of memory, caused in every way that a monitor claims to see, by one to eight threads, with random
// look-ups before and after: no lease is on old memory (R30, R55). The test checks the bytes that io_uring sends, and
// each registration's number of the last event. Meanwhile caches, threads and processes begin and end.
//
// Without PINFOLD_TEST_SECONDS all tests together take ten seconds; with it, each takes that long. PINFOLD_TEST_SEED
// replays the choices of each thread; PINFOLD_FUZZ_ONLY limits the choices (hazard_fuzz/filter.hpp).
#include "stress/hazard_fuzz/round.hpp"
#include "support/fixtures/reused_address.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iostream>

namespace pinfold::testing::hazard_fuzz_stress_test {
namespace {

using namespace hazard_fuzz;

const std::vector<watch_case>& fuzzed_sets() {
  static const std::vector<watch_case> list{
      {"manual", nullptr, monitor_choice::manual, false, true},
      {"hooks", nullptr, monitor_choice::hooks | monitor_choice::manual},  // this program has inline calls
      {"userfaultfd", nullptr, monitor_choice::userfaultfd},
      {"strict_userfaultfd", nullptr, monitor_choice::userfaultfd, true},
      {"hooks_and_userfaultfd", nullptr, monitor_choice::hooks | monitor_choice::userfaultfd},
      {"automatic", nullptr, monitor_choice::automatic},
      {"bpf", nullptr, monitor_choice::bpf},
  };
  return list;
}

enum class placement : std::uint8_t { one_cpu, all_cpus };

std::chrono::milliseconds time_of_each() {
  const auto tests = 2 * fuzzed_sets().size();
  return std::getenv("PINFOLD_TEST_SECONDS") != nullptr ? std::chrono::milliseconds(stress_time())
                                                        : std::chrono::milliseconds(10'000 / tests);
}

bool can_check_bytes() {
  io_uring ring{};
  if (thread_sanitized) return false;  // for the same reason as with events from a ring
  if (::io_uring_queue_init(2, &ring, 0) != 0) return false;
  ::io_uring_queue_exit(&ring);
  return true;
}

std::size_t free_huge_pages() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  std::size_t pages = 0;
  file >> pages;
  return pages;
}

/// Returns the monitors of the set that proved themselves here.
watching proven_of(const watch_case& who, std::string& text) {
  const arena none(0, 0, false);
  std::atomic<std::uint64_t> hits{0};
  cache_and_device probe(none, hits, false, {.monitor = who.monitor, .strict = who.strict});
  text = probe.cache().monitors();
  watching by{{}, who.announces, sanitized, who.strict, probe.monitors()};
  for (const auto& [name, one] : {std::pair{"hooks", monitor_choice::hooks},
                                  {"userfaultfd", monitor_choice::userfaultfd},
                                  {"bpf", monitor_choice::bpf}})
    if (probe.monitors().find(name) != std::string::npos) by.proven = by.proven | one;
  return by;
}

class hazard_fuzz_on : public ::testing::Test {
 protected:
  /// Runs rounds for that long, and goes on until `enough` holds, as threads may get no processor in it: for two
  /// minutes more at most.
  void run_rounds(const watch_case& who, const watching& by, std::chrono::milliseconds time,
                  const std::function<bool()>& enough);

  filter only_;
  foreign_patch patch_;
  findings found_;
  counters done_;
};

class hazard_fuzz_of : public hazard_fuzz_on,
                       public ::testing::WithParamInterface<std::tuple<watch_case, placement>> {};

void hazard_fuzz_on::run_rounds(const watch_case& who, const watching& by, std::chrono::milliseconds time,
                                const std::function<bool()>& enough) {
  constexpr std::size_t enough_huge_pages = 64;
  helper_process helper;
  watchdog guard([this] { done_.print(std::cerr), found_.print(std::cerr); });
  const auto end = steady_clock::now() + time;
  const bool devices = can_check_bytes();
  const auto goes_on = [&, at_most = end + std::chrono::minutes(2)] {
    const auto now = steady_clock::now();
    return now < end || (!enough() && now < at_most);
  };
  for (auto seed = test_seed(); goes_on(); ++seed) {
    choices random(seed, 1000, 0);
    const auto threads = static_cast<unsigned>(1 + random.below(8));
    run one{seed,
            threads,
            random.one_of(std::array{0U, 1U, 1U, 8U, 62U}),
            by,
            !random.one_in(3),
            free_huge_pages() >= enough_huge_pages,
            only_,
            patch_,
            helper,
            found_,
            done_,
            guard,
            arena(run::shared_slots + threads * run::own_slots, run::shared_small_slots + threads, who.announces),
            caches(one.slots, done_.hits, who, devices, by.names)};
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    run_round(one, std::clamp(left, milliseconds(100), milliseconds(500 + random.below(1500))));
    guard.beat();
  }
}

TEST_P(hazard_fuzz_of, R30_R55_no_lease_is_on_replaced_memory) {
  const auto& [who, where] = GetParam();
  const on_one_cpu here(where == placement::one_cpu);
  program_steps::own_arenas();
  std::string monitors;
  const auto by = proven_of(who, monitors);
  if (monitors.starts_with("none")) GTEST_SKIP() << monitors;
  const auto has_hit = [&] { return done_.hits > 0 || !by.keeps(memory_kind::anonymous); };
  run_rounds(who, by, time_of_each(), [&] { return done_.events > 0 && has_hit(); });
  std::cout << monitors << ": ";
  done_.print(std::cout);
  found_.print(std::cout);
  EXPECT_GT(done_.events, 0U);
  EXPECT_TRUE(has_hit());
  EXPECT_EQ(found_.count(), 0U);
}

INSTANTIATE_TEST_SUITE_P(watched_by, hazard_fuzz_of,
                         ::testing::Combine(::testing::ValuesIn(fuzzed_sets()),
                                            ::testing::Values(placement::all_cpus, placement::one_cpu)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) +
                                  (std::get<1>(one.param) == placement::one_cpu ? "_one_cpu" : "_all_cpus");
                         });

// The control: no monitor invalidates these registrations. A fault that is not found here would not be found elsewhere.
TEST_F(hazard_fuzz_on, fuzzer_finds_stale_leases_without_a_monitor) {
  const watch_case unannounced{"unannounced", nullptr, monitor_choice::manual};
  const auto all = monitor_choice::hooks | monitor_choice::userfaultfd | monitor_choice::bpf;
  program_steps::own_arenas();
  run_rounds(unannounced, {all, false, sanitized}, std::min(time_of_each(), std::chrono::milliseconds(5000)),
             [&] { return found_.count() > 0; });
  found_.print(std::cout);
  EXPECT_GT(found_.count(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::hazard_fuzz_stress_test

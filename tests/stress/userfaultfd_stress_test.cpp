// SPDX-License-Identifier: BSD-3-Clause
// The userfaultfd monitor on the real kernel, for a long time: addresses that are used again, and threads that unmap,
// fork and end while the monitor begins and ends.
#include "support/fixtures/reused_address.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"
#include "support/processes/child_process.hpp"

#include <random>

namespace pinfold::testing::userfaultfd_stress_test {
namespace {

class userfaultfd_stress : public ::testing::Test {
 protected:
  void SetUp() override { PINFOLD_NEED_MONITOR(in); }

  // Returns a function that counts its calls, and returns true for a part of the requested time.
  std::function<bool()> for_a_while(std::size_t& rounds, int part) {
    return [this, &rounds,
            until = std::chrono::steady_clock::now() +
                    std::chrono::duration_cast<std::chrono::milliseconds>(stress_time()) / part] {
      if (++rounds % 64 == 0) guard.beat();
      return std::chrono::steady_clock::now() < until;
    };
  }
  reused_address memory(bool settles) {
    return {in, [this](const range& pages) { return in->watch(pages).has_value(); },
            [this, settles] {
              if (settles) in->wait_for_events();
            }};
  }
  static void report(const char* what, std::size_t stale, std::size_t rounds) {
    std::printf("%s: %zu stale of %zu\n", what, stale, rounds);
  }

  uffd_monitor in;
  watchdog guard{[] {}};
};

TEST_F(userfaultfd_stress, R30_thread_that_unmapped_finds_no_stale_registration) {
  for (const bool pinned : {false, true}) {
    const on_one_cpu here(pinned);
    in.monitor.reset();
    in.monitor = in.make();  // the monitor's thread starts on this thread's CPUs
    std::size_t rounds = 0;
    const auto stale = memory(false).by_one_thread(for_a_while(rounds, 4));
    report(pinned ? "one thread, one CPU" : "one thread", stale, rounds);
    EXPECT_EQ(stale, 0U);
  }
}

TEST_F(userfaultfd_stress, R30_thread_that_waits_for_events_finds_no_stale_registration) {
  for (const bool pinned : {false, true}) {
    const on_one_cpu here(pinned);
    in.monitor.reset();
    in.monitor = in.make();
    std::size_t rounds = 0;
    const auto stale = memory(true).by_two_threads(for_a_while(rounds, 4));
    report(pinned ? "two threads, settled, one CPU" : "two threads, settled", stale, rounds);
    EXPECT_EQ(stale, 0U);
  }
}

// What `settle` prevents. The test prints how often, and judges nothing.
TEST_F(userfaultfd_stress, stale_registrations_without_wait_for_events_are_counted) {
  std::size_t rounds = 0;
  const auto stale = memory(false).by_two_threads(for_a_while(rounds, 8));
  report("two threads, not settled", stale, rounds);
}

TEST_F(userfaultfd_stress, monitor_that_reads_before_it_reserves_a_number_is_detected) {
  const on_one_cpu here;
  const naive_monitor naive(in.event_log);
  std::size_t rounds = 0;
  std::size_t stale = 0;
  while (stale == 0)  // the watchdog limits it
    stale = reused_address(
                in, [&](const range& pages) { return naive.watch(pages); }, [] {})
                .by_one_thread(for_a_while(rounds, 8));
  report("naive", stale, rounds);
}

// Blocks of the allocator, mappings and stacks are watched and given up by threads that begin and end, with forks
// between.
void use_memory(const std::stop_token& stop, invalidation::monitor& watching, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  while (!stop.stop_requested()) {
    std::vector<char> block(page << random() % 10);
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data()) / page * page;
    static_cast<void>(watching.watch({begin, begin + block.size()}));
    const mapped memory(page * (1 + random() % 64));
    static_cast<void>(watching.watch(memory.all()));
    if (random() % 4 == 0) ::madvise(memory.at(), page, MADV_DONTNEED);
    if (random() % 4 == 0) watching.wait_for_events();
    if (random() % 16 == 0)
      std::jthread([&] {
        volatile char here[8 * page] = {};
        const auto at = reinterpret_cast<std::uintptr_t>(here) / page * page;
        static_cast<void>(watching.watch({at, at + page}));
      }).join();
  }
}

TEST_F(userfaultfd_stress, R35_R37_no_thread_waits_forever) {
  const auto seed = test_seed();
  std::size_t rounds = 0;
  for (const auto on = for_a_while(rounds, 2); on();) {
    {
      std::vector<std::jthread> threads;
      for (std::uint64_t i = 0; i < 4; ++i)
        threads.emplace_back(
            [&, i](const std::stop_token& stop) { use_memory(stop, *in.monitor, seed + 4 * rounds + i); });
      for (int i = 0; i < 3; ++i) {
        child_process child([&](line&) { return in->works() ? 1 : 0; });
        ASSERT_EQ(child.reap(), 0);
      }
    }
    std::vector<std::unique_ptr<mapped>> all(32);
    for (auto& one : all) {
      one = std::make_unique<mapped>(4 * page);
      ASSERT_TRUE(in->watch(one->all()));
    }
    std::jthread unmapping([&] { all.clear(); });
    ASSERT_TRUE(in->works());
    in.monitor.reset();
    unmapping.join();
    in.monitor = in.make();
    ASSERT_TRUE(in.monitor) << describe(in.refusal);
    guard.beat();
  }
  std::printf("%zu monitors\n", rounds);
}

}  // namespace
}  // namespace pinfold::testing::userfaultfd_stress_test

// SPDX-License-Identifier: BSD-3-Clause
// No address is found in a cache after its memory was replaced (R30). The control: a naive monitor fails this test.
#include "support/fixtures/reused_address.hpp"
#include "support/host/watchdog.hpp"

namespace pinfold::testing::userfaultfd_race_test {
namespace {

constexpr std::size_t rounds = sanitized ? 2'000 : 10'000;

class userfaultfd_race : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { PINFOLD_NEED_MONITOR(in); }

  reused_address tried() {
    return {in, [this](const range& pages) { return in->watch(pages).has_value(); }, [this] { in->wait_for_events(); }};
  }

  on_one_cpu pinned{GetParam()};
  uffd_monitor in;
  watchdog guard{[] {}};
};

INSTANTIATE_TEST_SUITE_P(on, userfaultfd_race, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "one_cpu" : "all_cpus"; });

TEST_P(userfaultfd_race, R30_thread_does_not_hit_memory_that_it_unmapped) {
  reused_address memory(in, [this](const range& pages) { return in->watch(pages).has_value(); }, [] {});
  EXPECT_EQ(memory.by_one_thread(times(rounds)), 0U);
}

TEST_P(userfaultfd_race, R30_thread_that_waits_for_events_does_not_hit_memory_unmapped_elsewhere) {
  EXPECT_EQ(tried().by_two_threads(times(rounds)), 0U);
}

TEST(userfaultfd_race_control, monitor_that_reads_before_it_reserves_a_number_is_detected) {
  uffd_monitor in;
  PINFOLD_NEED_MONITOR(in);
  const watchdog guard([] {});
  const on_one_cpu pinned;
  const naive_monitor naive(in.event_log);
  reused_address memory(in, [&](const range& pages) { return naive.watch(pages); }, [] {});
  std::size_t stale = 0;
  for (int i = 0; i < 1000 && stale == 0; ++i) stale = memory.by_one_thread(times(100));
  EXPECT_GT(stale, 0U);
}

}  // namespace
}  // namespace pinfold::testing::userfaultfd_race_test

// SPDX-License-Identifier: BSD-3-Clause
// The event log that monitors write and caches read: R35, R37, and R49 for memory that goes.
#include "invalidation/event_log.hpp"
#include "invalidation/background_open.hpp"
#include "invalidation/registered_filter.hpp"
#include "support/processes/child_process.hpp"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace pinfold::invalidation::event_log_test {
namespace {

using namespace std::chrono_literals;

event_log& here() { return event_log::here(); }

struct reader {
  std::uint64_t cursor = here().generation().load();
  range gone{};
  invalidation::read_status next() { return here().read(cursor, gone); }
  /// Reads again when the log has waited for so long as it may: the writer may have no processor.
  invalidation::read_status next_finished() {
    for (;;) {
      const auto start = std::chrono::steady_clock::now();
      const auto seen = next();
      if (seen != read_status::unfinished) return seen;
      EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(event_log::wait_limit_ms));
    }
  }
};

TEST(event_log, ranges_are_read_in_the_order_of_posting) {
  reader r;
  EXPECT_EQ(r.next(), read_status::nothing);
  for (std::uintptr_t i = 1; i <= 100; ++i) here().post({i << 12U, (i + 1) << 12U});
  for (std::uintptr_t i = 1; i <= 100; ++i) {
    ASSERT_EQ(r.next(), read_status::one);
    EXPECT_EQ(r.gone, (range{i << 12U, (i + 1) << 12U}));
  }
  EXPECT_EQ(r.next(), read_status::nothing);
}

TEST(event_log, R35_overtaken_reader_reads_status_everything) {
  reader in_time;
  for (std::size_t i = 0; i < event_log::capacity; ++i) here().post({4096, 8192});
  reader just_in_time = in_time;
  EXPECT_EQ(just_in_time.next(), read_status::one);
  here().post({4096, 8192});
  EXPECT_EQ(in_time.next(), read_status::everything);
  for (std::size_t i = 0; i < event_log::capacity; ++i)
    ASSERT_EQ(in_time.next(), read_status::one) << "what is there is read";
  EXPECT_EQ(in_time.next(), read_status::nothing);
}

TEST(event_log, a_reader_waits_for_a_reserved_number) {
  reader r;
  const auto mine = here().reserve();
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    here().publish(mine, {4096, 8192});
  });
  EXPECT_EQ(r.next_finished(), read_status::one);
  EXPECT_EQ(r.gone, (range{4096, 8192}));
  later.join();
}

TEST(event_log, R35_overtaken_reader_still_waits_for_a_reserved_number) {
  reader r;
  for (std::size_t i = 0; i < event_log::capacity; ++i) here().post({4096, 8192});
  const auto mine = here().reserve();
  EXPECT_EQ(r.next(), read_status::everything);
  for (std::size_t i = 1; i < event_log::capacity; ++i) ASSERT_EQ(r.next(), read_status::one);
  EXPECT_EQ(r.next(), read_status::unfinished) << "memory may still go, and be told under that number";
  here().publish(mine, {12288, 16384});
  EXPECT_EQ(r.next(), read_status::one);
  EXPECT_EQ(r.gone.begin, 12288U);
}

TEST(event_log, unpublished_number_reads_as_unfinished) {
  reader r;
  const auto mine = here().reserve();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(r.next(), read_status::unfinished);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
  EXPECT_EQ(r.next(), read_status::unfinished);
  here().publish(mine, {4096, 8192});
  EXPECT_EQ(r.next(), read_status::one);
  EXPECT_EQ(r.next(), read_status::nothing);
}

TEST(event_log, R35_writer_late_by_a_whole_ring_takes_another_number) {
  const auto stopped = here().reserve();
  here().post({4096, 8192});
  reader r;
  for (std::size_t i = 1; i < event_log::capacity; ++i) here().post({4096, 8192});
  here().publish(stopped, {12288, 16384});
  for (std::size_t i = 1; i < event_log::capacity; ++i) {
    ASSERT_EQ(r.next(), read_status::one) << i;
    EXPECT_EQ(r.gone, (range{4096, 8192}));
  }
  EXPECT_EQ(r.next(), read_status::one);
  EXPECT_EQ(r.gone, (range{12288, 16384}));
  EXPECT_EQ(r.next(), read_status::nothing);
}

// The monitor has reserved a number, and may still read an event of any memory: until it publishes, no reader passes
// that number.
TEST(event_log, R35_overtaken_reader_does_not_pass_an_unpublished_number) {
  reader r;
  const auto stopped = here().reserve();
  for (std::size_t i = 0; i < 2 * event_log::capacity; ++i) here().post({4096, 8192});
  EXPECT_EQ(r.next(), read_status::unfinished);
  EXPECT_EQ(r.next(), read_status::unfinished);
  here().publish(stopped, {12288, 16384});
  EXPECT_EQ(r.next(), read_status::everything);
}

TEST(event_log, R31_overtaken_reader_skips_events_of_unregistered_memory) {
  here().post({4096, 8192});
  reader r;
  for (std::size_t i = 0; i < 2 * event_log::capacity; ++i) here().publish(here().reserve(), {});
  EXPECT_EQ(r.next(), read_status::one);
  EXPECT_TRUE(r.gone.empty());
  here().post({12288, 16384});
  reader again{r.cursor};
  for (std::size_t i = 0; i < event_log::capacity; ++i) here().publish(here().reserve(), {});
  EXPECT_EQ(again.next(), read_status::everything);
}

TEST(event_log, R35_concurrent_posts_lose_no_range) {
  constexpr std::uintptr_t each = 1000, threads = 4;
  reader r;
  std::vector<std::thread> writers;
  for (std::uintptr_t t = 0; t < threads; ++t)
    writers.emplace_back([t] {
      for (std::uintptr_t i = 0; i < each; ++i) here().post({t * each + i + 1, t * each + i + 2});
    });
  std::set<std::uintptr_t> seen;
  while (seen.size() < each * threads) {
    if (r.next_finished() == read_status::nothing) continue;
    ASSERT_EQ(r.gone.end, r.gone.begin + 1);
    ASSERT_TRUE(seen.insert(r.gone.begin).second);
  }
  for (auto& one : writers) one.join();
  EXPECT_EQ(r.next(), read_status::nothing);
}

TEST(event_log, R35_a_signal_handler_may_post) {
  reader r;
  std::signal(SIGUSR1, [](int) { here().post({4096, 8192}); });
  for (int i = 0; i < 10; ++i) ::raise(SIGUSR1);
  std::signal(SIGUSR1, SIG_DFL);
  int seen = 0;
  while (r.next() == read_status::one) ++seen;
  EXPECT_EQ(seen, 10);
}

TEST(event_log, R65_a_fork_child_has_none_of_its_parents_registrations_in_the_background) {
  auto in_parent = std::make_unique<background_open>();
  testing::child_process child([&](testing::line&) {
    const bool none = !background_open::look().any_since();
    const background_open::look before;
    const bool seen = [&] {
      const background_open own;
      return background_open::look().any_since();
    }();
    in_parent.reset();  // the thread that forked had it
    return none && seen && before.any_since() && !background_open::look().any_since() ? 0 : 1;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(background_open::look().any_since());
  in_parent.reset();
  EXPECT_FALSE(background_open::look().any_since());
}

TEST(event_log, R37_fork_child_has_an_empty_log_and_another_process_number) {
  const auto number = here().process();
  const auto generation = here().generation().load();
  registered_filter& watched = registered_filter::here();
  ASSERT_TRUE(watched.prepare({4096, 8192}));
  watched.add({4096, 8192});
  testing::child_process child([&](testing::line&) {
    if (event_log::if_there()->process() != 0 || event_log::if_there()->generation().load() != 0) return 1;
    if (registered_filter::if_there()->touches({4096, 8192})) return 2;
    for (int i = 0; i < 10; ++i) event_log::if_there()->post({1, 2});  // as a hook may do before there is a cache
    if (here().process() == number || here().process() == 0) return 3;
    const auto own = here().generation().load();
    if (own >> 44U == generation >> 44U) return 4;
    here().post({4096, 8192});
    return here().generation().load() == own + 1 ? 0 : 5;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_EQ(here().generation().load(), generation);
  watched.remove({4096, 8192});
}

}  // namespace
}  // namespace pinfold::invalidation::event_log_test

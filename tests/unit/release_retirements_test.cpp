// SPDX-License-Identifier: BSD-3-Clause
// The exporter's thread frees retired memory: when, in which order, and what its reports say meanwhile.
#include "release/server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace pinfold::release::release_retirements_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t exporter = 0x5ee5;

/// A server with an own number, and memory that one importer may hold.
class retired_memory : public ::testing::Test {
 protected:
  static server_owner started(std::size_t limbo_bytes = SIZE_MAX) {
    static std::uint64_t last = exporter + (static_cast<std::uint64_t>(::getpid()) << 32U);
    return server::start(++last, limbo_bytes).value();
  }
  static retirement begin(
      server& in, std::uint64_t serial, std::size_t bytes, std::chrono::milliseconds timeout,
      free_call free = [] { return result<void>(); }) {
    return in.begin(serial, bytes, timeout, free).value();
  }
};

}  // namespace

TEST_F(retired_memory, its_free_may_end_the_server) {
  for (int i = 0; i < 20; ++i) {
    auto shared = std::make_shared<server_owner>(started());
    ASSERT_TRUE((*shared)->registry()->add(1));
    std::promise<void> ended;
    server& in = **shared;
    std::atomic<bool> dropped{false};
    free_call free = [self = shared, &ended, &dropped]() mutable -> result<void> {
      while (!dropped) std::this_thread::yield();
      self.reset();
      ended.set_value();
      return {};
    };
    const auto ticket = begin(in, 1, 10, 0ms, std::move(free));
    shared.reset();
    dropped = true;
    ended.get_future().wait();
    EXPECT_TRUE(ticket.wait(60s).value().all_let_go());
  }
}

TEST_F(retired_memory, is_not_reported_as_freed_before_free_has_returned) {
  const auto in = started();
  ASSERT_TRUE(in->registry()->add(1));
  std::promise<void> entered;
  std::promise<void> leave;
  const auto ticket = begin(*in, 1, 10, 10s, [&]() -> result<void> {
    entered.set_value();
    leave.get_future().wait();
    return fail_errno(errc::driver_error, 7, "cannot free");
  });
  entered.get_future().wait();
  EXPECT_EQ(ticket.report().value().state, retire_state::asking);
  EXPECT_FALSE(ticket.wait(1ms).value().all_let_go());
  leave.set_value();
  const auto last = ticket.wait(60s).value();
  EXPECT_EQ(last.state, retire_state::freed);
  EXPECT_TRUE(last.free_failed);
  EXPECT_EQ(last.failure.native, 7);
}

TEST_F(retired_memory, is_kept_if_other_memory_makes_room) {
  const auto in = started(100);
  for (const std::uint64_t serial : {1U, 2U}) ASSERT_TRUE(in->registry()->add(serial));
  ASSERT_TRUE(in->registry()->lend(1, 5));
  const auto held = begin(*in, 1, 60, 0ms);
  EXPECT_EQ(held.wait(50ms).value().state, retire_state::limbo);
  const auto idle = begin(*in, 2, 60, 0ms);
  EXPECT_EQ(idle.wait(60s).value().state, retire_state::freed);
  EXPECT_EQ(held.wait(50ms).value().state, retire_state::limbo);
  EXPECT_EQ(in->registry()->died(5), 1U);
}

// Otherwise its importers would be forgotten, and the program told that nothing holds the memory.
TEST_F(retired_memory, makes_no_room_if_the_program_frees_it_itself) {
  const auto in = started(100);
  for (const std::uint64_t serial : {1U, 2U})
    ASSERT_TRUE(in->registry()->add(serial) && in->registry()->lend(serial, 5));
  constexpr std::array<std::uint64_t, 1> announced{1};
  EXPECT_EQ(in->announce(announced, 0ms).value(), 1U);
  EXPECT_EQ(begin(*in, 2, 200, 0ms).wait(60s).value().state, retire_state::over_budget);
  EXPECT_EQ(in->announce(announced, 0ms).value(), 1U);
}

TEST_F(retired_memory, is_waited_for_with_the_longest_timeout) {
  const auto in = started();
  for (const std::uint64_t serial : {1U, 2U})
    ASSERT_TRUE(in->registry()->add(serial) && in->registry()->lend(serial, 5));
  const auto ticket = begin(*in, 1, 10, std::chrono::milliseconds::max());
  EXPECT_EQ(ticket.wait(std::chrono::milliseconds::min()).value().state, retire_state::asking);
  auto waits = std::async(std::launch::async, [&] {
    return in->registry()->wait(2, std::chrono::milliseconds::max()).value().holders.size();
  });
  EXPECT_EQ(waits.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(in->registry()->died(5), 2U);
  EXPECT_EQ(waits.get(), 0U);
  EXPECT_TRUE(ticket.wait(std::chrono::milliseconds::max()).value().all_let_go());
}

TEST(retirements, count_the_death_that_a_report_tells) {
  const auto registry = std::make_shared<release_registry>(exporter);
  const auto in = std::make_shared<retirements>(registry, SIZE_MAX);
  for (std::uint64_t one = 1; one <= 2'000; ++one) {
    ASSERT_TRUE(registry->add(one) && registry->lend(one, one));
    free_call free = [] { return result<void>(); };
    const auto ticket = in->begin(one, 10, 10s, free).value();
    const auto ends = std::async(std::launch::async, [&] { in->died(one); });
    while (in->report(*ticket).value().died == 0) std::this_thread::yield();
    ASSERT_EQ(in->statistics().importers_died, one);
    in->settle();
  }
  in->abandon();
}

/// Returns the least time that an importer's message takes, with so much memory in limbo.
std::chrono::nanoseconds time_beside(std::uint64_t memories) {
  const auto registry = std::make_shared<release_registry>(exporter);
  const auto in = std::make_shared<retirements>(registry, SIZE_MAX);
  for (std::uint64_t one = 1; one <= memories; ++one) {
    free_call free = [] { return result<void>(); };
    EXPECT_TRUE(registry->add(one) && registry->lend(one, 5) && in->begin(one, 10, 0ms, free));
  }
  while (registry->next_request(5)) {
  }
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 100; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(registry->next_request(5));
    in->settle();
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - start);
  }
  in->abandon();
  return least;
}

TEST(retirements, in_limbo_delay_no_message) {
  const auto few = time_beside(10);
  EXPECT_LT(time_beside(9'000), 50 * few + 5ms) << "few: " << few.count() << " ns";
}

/// Returns the least time that the end of a connection takes whose importer holds none of so much memory.
std::chrono::nanoseconds time_of_a_loss_beside(std::uint64_t memories) {
  release_registry registry(exporter);
  for (std::uint64_t one = 1; one <= memories; ++one) EXPECT_TRUE(registry.add(one) && registry.lend(one, 5));
  auto least = std::chrono::nanoseconds::max();
  for (std::uint64_t stranger = 6; stranger < 106; ++stranger) {
    EXPECT_TRUE(registry.lend(1, stranger));
    EXPECT_FALSE(registry.receive(
        stranger,
        sealed({.exporter = exporter, .serial = 1, .kind = release_kind::answer, .state = release_state::gone})));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(registry.lost(stranger));
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - start);
  }
  EXPECT_TRUE(registry.lost(5));
  return least;
}

/// Returns the least time that a round of the server spends on a connection that ended, and whose importer holds so
/// much memory.
std::chrono::nanoseconds time_of_a_round_beside(std::uint64_t memories) {
  release_registry registry(exporter);
  for (std::uint64_t one = 1; one <= memories; ++one) EXPECT_TRUE(registry.add(one) && registry.lend(one, 5));
  auto least = std::chrono::nanoseconds::max();
  for (int round = 0; round < 100; ++round) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(registry.lost(5));
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - start);
  }
  EXPECT_TRUE(registry.report(1).value().holders.front().lost);
  return least;
}

TEST(retirements, connections_that_ended_with_memory_delay_no_round) {
  const auto few = time_of_a_round_beside(10);
  EXPECT_LT(time_of_a_round_beside(50'000), 50 * few + 50us) << "few: " << few.count() << " ns";
}

TEST(retirements, connections_without_memory_end_at_once_beside_much_memory) {
  const auto few = time_of_a_loss_beside(10);
  EXPECT_LT(time_of_a_loss_beside(50'000), 50 * few + 50us) << "few: " << few.count() << " ns";
}

}  // namespace pinfold::release::release_retirements_test

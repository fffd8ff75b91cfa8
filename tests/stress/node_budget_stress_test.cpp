// SPDX-License-Identifier: BSD-3-Clause
// Processes that draw from one account and are killed at random moments: whatever they were doing, nothing is ever
// taken above the maximum, and afterwards the account holds what the living have.
#include "node_budget/membership.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/node_account.hpp"
#include "support/host/settings.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/node_budget.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::node_budget_stress_test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t page = 4096;
constexpr std::size_t maximum = 1024 * page;

/// Ends a test that hangs. Without a thread of its own: the children of this test start threads.
struct time_limit {
  time_limit() { ::alarm(300); }
  ~time_limit() { ::alarm(0); }
  time_limit(const time_limit&) = delete;
  time_limit& operator=(const time_limit&) = delete;
};

// Takes and gives as fast as it can, and joins and leaves at times.
int draw_for_ever(const node_account& account, std::uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  for (;;) {
    const auto budget = account.open(0);
    std::size_t held = 0;
    for (int steps = 0; steps < 2000; ++steps) {
      const std::size_t bytes = random() % (maximum / 4) + 1;
      if (random() % 2 == 0 && budget->take(bytes)) {
        held += bytes;
      } else {
        budget->give(std::min(held, bytes));
        held -= std::min(held, bytes);
      }
      if (steps % 64 == 0) budget->trim();
    }
  }
}

// Acquires and releases in a cache over a device that does nothing, some of it on a second thread.
int miss_for_ever(const node_account& account, std::uint64_t seed, when_full full) {
  const auto budget = account.open(0);
  local_fixture f({.full = full, .node_budget = budget, .full_timeout = 20ms});
  const auto work = [&](unsigned number) {
    std::minstd_rand random(static_cast<unsigned>(seed + number));
    for (;;) {
      const std::uintptr_t at = (random() % 4096 + 1) * 0x100000;
      const auto lease = f.acquire(at, at + (random() % 64 + 1) * page);
      if (lease && random() % 16 == 0) std::this_thread::sleep_for(100us);
    }
  };
  std::thread beside(work, 1);
  work(0);
  return 0;
}

using body = int (*)(const node_account&, std::uint64_t seed);

std::unique_ptr<child_process> start(const node_account& account, body run, std::uint64_t seed) {
  return std::make_unique<child_process>([&](line&) {
    try {
      return run(account, seed);
    } catch (const std::exception& failed) {  // the child must not go on with the test
      std::fprintf(stderr, "%s\n", failed.what());
      return 1;
    }
  });
}

std::size_t sum_of(const node_budget& budget) {
  std::size_t sum = 0;
  for (const auto& one : budget.members()) sum += one.bytes;
  return sum;
}

// While no member runs, and none is in the middle of a change, the total is the sum of the parts.
bool adds_up(const node_budget& budget) {
  const node::account& shared = budget.inside().shared();
  std::uint64_t sum = 0;
  for (const node::slot& one : shared.members) {
    if (one.pending.load() != 0) return true;  // this moment says nothing
    sum += one.units.load();
  }
  return node::total::of(shared.taken.load()).units == sum;
}

// Kills children at random moments, for `stress_time`, and starts others; an observer reads the total meanwhile.
void kill_at_random(body run, std::chrono::microseconds longest) {
  const time_limit guard;
  std::mt19937_64 random(test_seed());
  const node_account account;
  const auto observer = account.open(maximum);
  std::vector<std::unique_ptr<child_process>> children(6);
  for (auto& one : children) one = start(account, run, random());
  std::size_t highest = 0;
  const auto end = steady_clock::now() + stress_time(2);
  const auto enough = [&](int kills) { return kills > 8 && highest > maximum / 2 && steady_clock::now() >= end; };
  for (int i = 0; !enough(i); ++i) {
    const auto until =
        steady_clock::now() + std::chrono::microseconds(random() % static_cast<std::uint64_t>(longest.count()));
    do {
      highest = std::max(highest, observer->used_bytes());
    } while (steady_clock::now() < until);
    auto& victim = children[random() % children.size()];
    if (victim->pid() > 0 && ::kill(victim->pid(), SIGKILL) == 0) {
      const int status = victim->reap();
      EXPECT_EQ(status, -SIGKILL) << "no child fails";
    }
    if (i % 8 == 0) {
      for (auto& one : children)
        if (one != victim) one->stop();
      EXPECT_TRUE(adds_up(*observer)) << "after " << i << " kills";
      for (auto& one : children)
        if (one != victim) one->go_on();
    }
    victim = start(account, run, random());
  }
  EXPECT_LE(highest, maximum);
  children.clear();
  EXPECT_TRUE(observer->inside().reclaim() || observer->used_bytes() == sum_of(*observer));
  EXPECT_EQ(observer->used_bytes(), 0U);
  EXPECT_EQ(observer->members().size(), 1U);
  EXPECT_TRUE(observer->take(maximum)) << "all of it came back";
}

TEST(node_budget_stress, nothing_is_lost_when_members_are_killed_while_they_draw) {
  kill_at_random(draw_for_ever, 2ms);
}

TEST(node_budget_stress, nothing_is_lost_when_processes_with_caches_are_killed) {
  kill_at_random(
      [](const node_account& account, std::uint64_t seed) { return miss_for_ever(account, seed, when_full::fail); },
      8ms);
}

TEST(node_budget_stress, nothing_is_lost_when_processes_that_wait_are_killed) {
  kill_at_random(
      [](const node_account& account, std::uint64_t seed) { return miss_for_ever(account, seed, when_full::wait); },
      8ms);
}

// The reclaiming processes are killed, too: each of them finds the slots of those that died before.
TEST(node_budget_stress, nothing_is_lost_when_processes_that_take_back_are_killed) {
  kill_at_random(
      [](const node_account& account, std::uint64_t seed) -> int {
        const auto budget = account.open(0);
        for (std::minstd_rand random(static_cast<unsigned>(seed));;) {
          static_cast<void>(budget->take(random() % maximum));
          static_cast<void>(budget->inside().reclaim());
          budget->give(budget->bytes_here());
        }
      },
      2ms);
}

// A member that stands still in the middle of a change blocks no other member.
TEST(node_budget_stress, a_member_that_stands_still_delays_no_other) {
  const time_limit guard;
  const node_account account;
  const auto budget = account.open(maximum);
  for (int round = 0; round < 50; ++round) {
    auto still = start(account, draw_for_ever, static_cast<std::uint64_t>(round));
    auto dies = start(account, draw_for_ever, static_cast<std::uint64_t>(round) + 100);
    std::this_thread::sleep_for(2ms);
    still->stop();
    dies.reset();
    const auto start_of_calls = steady_clock::now();
    static_cast<void>(budget->inside().reclaim());
    if (budget->take(page)) budget->give(page);
    EXPECT_LT(steady_clock::now() - start_of_calls, 60s) << "it stands still for ever";
    still.reset();
    static_cast<void>(budget->inside().reclaim());
    budget->trim();
    EXPECT_EQ(budget->used_bytes(), 0U);
  }
}

// Threads of one process, over two memberships, with opens and closes beside them.
TEST(node_budget_stress, threads_of_two_memberships) {
  const time_limit guard;
  const node_account account;
  const auto one = account.open(maximum);
  const auto other = account.open(0);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number)
    threads.emplace_back([&, number] {
      local_fixture f({.full = number % 2 == 0 ? when_full::fail : when_full::wait,
                       .node_budget = number < 2 ? one : other,
                       .full_timeout = 20ms});
      std::minstd_rand random(number + 1);
      while (!stop) {
        const std::uintptr_t at = (random() % 4096 + 1) * 0x100000;
        static_cast<void>(f.acquire(at, at + (random() % 64 + 1) * page));
        if (random() % 64 == 0) static_cast<void>(f.cache.progress());
      }
      f.expect_sound();
    });
  threads.emplace_back([&] {
    while (!stop) {
      const auto third = account.open(0);
      static_cast<void>(third->take(page));
      static_cast<void>(third->members());
      static_cast<void>(third->inside().reclaim());
    }
  });
  const auto until = steady_clock::now() + stress_time(6);
  while (steady_clock::now() < until) EXPECT_LE(one->used_bytes(), maximum);
  stop = true;
  for (auto& each : threads) each.join();
  one->trim();
  other->trim();
  EXPECT_EQ(one->bytes_here() + other->bytes_here(), 0U);
  EXPECT_EQ(one->used_bytes(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::node_budget_stress_test

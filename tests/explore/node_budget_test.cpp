// SPDX-License-Identifier: BSD-3-Clause
// Forks while another thread opens a node's budget and leaves it again, with one preemption.
#include "forks.hpp"
#include "runs.hpp"
#include "support/fixtures/node_account.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace pinfold::explore::node_budget_test {
namespace {

using testing::node_account;

void fork_beside_a_member(const node_account& account) {
  std::thread member([&] { static_cast<void>(node_budget::open(account.name(), {.shared = false, .pins = false})); });
  std::thread forks([&] {
    const auto before = all_threads.now();
    fork_here([&] {
      if (account.open_files() != 0) all_threads.fail("it has a file of the account");
    });
    if (all_threads.now() - before > 500'000'000) all_threads.fail("the fork has waited in vain");
  });
  all_threads.expect_forks();
  all_threads.arm();
  member.join();
  forks.join();
  all_threads.disarm();
}

TEST(explore_node_budget, R37_fork_waits_for_no_member_in_vain_and_leaves_the_child_no_file) {
  const node_account account;
  const auto stays = account.open(std::size_t{1} << 20U);
  for (std::uint32_t step = 0, steps = 1; step <= steps; ++step) {
    const auto got =
        run({.by_priority = false, .preempted = {{{step, 0}, {}}}}, [&] { fork_beside_a_member(account); });
    steps = got.steps;
    ASSERT_EQ(got.failure, "") << "step " << step;
  }
}

}  // namespace
}  // namespace pinfold::explore::node_budget_test

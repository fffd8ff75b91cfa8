// SPDX-License-Identifier: BSD-3-Clause
// The node's budget in C.
#include "support/fixtures/node_account.hpp"

#include <pinfold/node_budget.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace pinfold::testing::c_node_budget_test {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

pinfold_node_budget_options of_bytes(std::size_t max_bytes) {
  pinfold_node_budget_options how{};
  how.size = sizeof how;
  how.max_bytes = max_bytes;
  how.no_pins = 1;
  return how;
}

int keep(void* self, const pinfold_node_budget_member* one) {
  static_cast<std::vector<std::string>*>(self)->emplace_back(one->name);
  return 0;
}

TEST(c_node_budget, takes_gives_and_tells) {
  const node_account account;
  auto how = of_bytes(mebibyte);
  how.member = "tester";
  pinfold_node_budget* budget = nullptr;
  ASSERT_EQ(pinfold_node_budget_open(account.name().c_str(), &how, &budget), PINFOLD_OK);
  EXPECT_EQ(pinfold_node_budget_take(budget, mebibyte), PINFOLD_OK);
  EXPECT_EQ(pinfold_node_budget_take(budget, 1), PINFOLD_E_OVER_BUDGET);
  pinfold_node_budget_state now{};
  now.size = sizeof now;
  EXPECT_EQ(pinfold_node_budget_read(budget, &now), PINFOLD_OK);
  EXPECT_EQ(now.used_bytes, mebibyte);
  EXPECT_EQ(now.bytes_here, mebibyte);
  EXPECT_EQ(now.members, 1U);
  std::vector<std::string> names;
  EXPECT_EQ(pinfold_node_budget_members(budget, keep, &names), PINFOLD_OK);
  EXPECT_EQ(names, std::vector<std::string>{"tester"});
  EXPECT_EQ(pinfold_node_budget_give(budget, mebibyte), PINFOLD_OK);
  EXPECT_EQ(pinfold_node_budget_trim(budget), PINFOLD_OK);
  EXPECT_EQ(pinfold_node_budget_set_max_bytes(budget, 4096), PINFOLD_OK);
  pinfold_node_budget_limits limits{};
  limits.size = sizeof limits;
  EXPECT_EQ(pinfold_node_budget_read_limits(budget, &limits), PINFOLD_OK);
  EXPECT_EQ(limits.account_max, 4096U);
  EXPECT_EQ(limits.account_used, 0U);
  pinfold_node_budget_close(budget);
}

TEST(c_node_budget, bad_input_is_refused) {
  const node_account account;
  pinfold_node_budget* budget = nullptr;
  auto how = of_bytes(mebibyte);
  EXPECT_EQ(pinfold_node_budget_open(nullptr, &how, &budget), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_open("a", &how, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_open(account.name().c_str(), nullptr, &budget), PINFOLD_E_INVALID_ARGUMENT);
  how.size = 1;
  EXPECT_EQ(pinfold_node_budget_open(account.name().c_str(), &how, &budget), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(budget, nullptr);
  EXPECT_EQ(pinfold_node_budget_take(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_give(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_trim(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_set_max_bytes(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_read(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_members(nullptr, keep, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_read_limits(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_remove(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_node_budget_close(nullptr);
  how = of_bytes(mebibyte);
  ASSERT_EQ(pinfold_node_budget_open(account.name().c_str(), &how, &budget), PINFOLD_OK);
  pinfold_node_budget_state now{};
  EXPECT_EQ(pinfold_node_budget_read(budget, &now), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_members(budget, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_node_budget_set_max_bytes(budget, 1), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_node_budget_limits limits{};
  EXPECT_EQ(pinfold_node_budget_read_limits(budget, &limits), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_node_budget_close(budget);
}

TEST(c_node_budget, options_of_a_cache_name_the_account) {
  const node_account account;
  pinfold_options options;
  ASSERT_EQ(pinfold_options_init(&options, sizeof options), PINFOLD_OK);
  EXPECT_STREQ(options.node_budget, "");
  const auto setting = "PINFOLD_NODE_BUDGET=" + account.name() + ":1M";
  ASSERT_EQ(pinfold_options_from_text(&options, setting.c_str()), PINFOLD_OK);
  EXPECT_EQ(options.node_budget, account.name());
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_mlock(&options, &cache), PINFOLD_OK) << pinfold_last_error()->message;
  EXPECT_EQ(node_budget::inspect(account.name())->members.size(), 1U);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  EXPECT_EQ(node_budget::inspect(account.name())->members.size(), 0U);
  ASSERT_EQ(pinfold_options_from_text(&options, "PINFOLD_NODE_BUDGET=none"), PINFOLD_OK);
  EXPECT_STREQ(options.node_budget, "");
  std::memcpy(options.node_budget, "a/b", 4);
  EXPECT_EQ(pinfold_create_mlock(&options, &cache), PINFOLD_E_INVALID_ARGUMENT);
  std::memset(options.node_budget, 'x', sizeof options.node_budget);
  EXPECT_EQ(pinfold_create_mlock(&options, &cache), PINFOLD_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace pinfold::testing::c_node_budget_test

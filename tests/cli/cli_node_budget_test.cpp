// SPDX-License-Identifier: BSD-3-Clause
// `pinfold info --node-budget`.
#include "support/fixtures/node_account.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/tool_run.hpp"

#include <fstream>
#include <string>

namespace pinfold::testing::cli_node_budget_test {
namespace {

TEST(cli_node_budget, shows_the_members_of_an_account) {
  const node_account account;
  const auto budget = account.open(std::size_t{1} << 20U);
  ASSERT_TRUE(budget->take(std::size_t{1} << 19U));
  const auto seen = run("info --node-budget=" + account.name());
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  EXPECT_NE(seen.out.find("of 1 MiB taken"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find(std::to_string(::getpid())), std::string::npos) << seen.out;
  const auto as_json = run("info --json --node-budget=" + account.name());
  EXPECT_EQ(as_json.status, 0) << as_json.complaints;
  EXPECT_NE(as_json.out.find("\"max_bytes\": 1048576"), std::string::npos) << as_json.out;
}

TEST(cli_node_budget, members_that_died_are_marked) {
  const node_account account;
  const auto budget = account.open(std::size_t{1} << 20U);
  child_process child([&](line&) {
    const auto member = account.open(std::size_t{1} << 20U);
    ::_exit(member->take(4096) ? 0 : 1);  // without the destructor
    return 2;
  });
  EXPECT_EQ(child.reap(), 0);
  const auto seen = run("info --json --node-budget=" + account.name());
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  const auto members = json::parse(seen.out).at("members");
  ASSERT_EQ(members.size(), 2U) << seen.out;
  EXPECT_EQ(members[0].at("ended"), false) << seen.out;
  EXPECT_EQ(members[1].at("ended"), true) << seen.out;
  EXPECT_NE(run("info --node-budget=" + account.name()).out.find("ended: "), std::string::npos);
}

TEST(cli_node_budget, an_account_that_does_not_exist_is_a_failure) {
  const auto seen = run("info --node-budget=no-such-account-" + std::to_string(::getpid()));
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("no such account"), std::string::npos) << seen.complaints;
}

TEST(cli_node_budget, an_account_that_cannot_be_used_is_named_with_its_file) {
  const node_account account;
  std::ofstream(account.path()) << "no account";
  const auto seen = run("info --node-budget=" + account.name());
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find(account.name() + " (" + account.path() + "): invalid_handle"), std::string::npos)
      << seen.complaints;
  const auto set = run("info --config", "PINFOLD_NODE_BUDGET=" + account.name() + ":1G");
  EXPECT_EQ(set.status, 2);
  EXPECT_NE(set.complaints.find(":1G (" + account.path() + "): invalid_handle"), std::string::npos) << set.complaints;
}

}  // namespace
}  // namespace pinfold::testing::cli_node_budget_test

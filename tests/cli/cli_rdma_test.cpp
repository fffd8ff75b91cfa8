// SPDX-License-Identifier: BSD-3-Clause
// The report of `pinfold info` on RDMA devices and libfabric. For hosts with a device see
// tests/rdma/driver_facts_test.cpp.
#include "support/processes/tool_run.hpp"

#include <filesystem>

namespace pinfold::testing::cli_rdma_test {
namespace {

json rdma_of(const outcome& seen) { return json::parse(seen.out, nullptr, false).at("rdma"); }

TEST(cli_rdma, info_reports_verbs_and_libfabric_or_the_reason) {
  const auto seen = run("info");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  const auto facts = rdma_of(run("info --json"));
  for (const char* const driver : {"verbs", "libfabric"}) {
    const auto& one = facts.at(driver);
    const auto why_not = one.at("why_not").get<std::string>();
    EXPECT_EQ(one.at("works").get<bool>(), why_not.empty()) << driver;
    EXPECT_NE(seen.out.find("\n  " + std::string(driver)), std::string::npos) << seen.out;
    EXPECT_NE(seen.out.find(why_not), std::string::npos) << seen.out;
    for (const char* const list : {"devices", "providers"})
      for (const auto& row : one.value(list, json::array())) expect_flat(row);
  }
}

TEST(cli_rdma, info_reports_version_and_providers_of_libfabric) {
  const auto libfabric = rdma_of(run("info --json")).at("libfabric");
  if (!libfabric.at("works").get<bool>()) GTEST_SKIP() << libfabric.at("why_not").get<std::string>();
  EXPECT_TRUE(libfabric.at("version").get<std::string>().find('.') != std::string::npos);
  const auto seen = run("info");
  for (const auto& one : libfabric.at("providers"))
    EXPECT_NE(seen.out.find(one.at("name").get<std::string>()), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find(libfabric.at("caches_too").get<bool>() ? "two caches" : "own registration cache is off"),
            std::string::npos)
      << seen.out;
}

// A copy of the tool has none of its modules beside it.
TEST(cli_rdma, tool_without_rdma_modules_reports_that) {
  const auto folder = ::testing::TempDir() + "pinfold_cli_rdma_" + std::to_string(getpid());
  std::filesystem::create_directories(folder + "/bin");
  std::filesystem::copy_file(tool(), folder + "/bin/pinfold");
  ::setenv("PINFOLD_TEST_TOOL", (folder + "/bin/pinfold").c_str(), 1);
  const auto facts = rdma_of(run("info --json"));
  ::unsetenv("PINFOLD_TEST_TOOL");
  std::filesystem::remove_all(folder);
  for (const char* const driver : {"verbs", "libfabric"})
    EXPECT_EQ(facts.at(driver).at("why_not"), "this pinfold was built without this driver");
}

}  // namespace
}  // namespace pinfold::testing::cli_rdma_test

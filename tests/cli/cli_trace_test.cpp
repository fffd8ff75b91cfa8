// SPDX-License-Identifier: BSD-3-Clause
// `pinfold trace`: records other programs, here the tool itself and shells around it.
#include "support/processes/tool_run.hpp"

#include <pinfold/trace_file.hpp>

#include <filesystem>
#include <set>
#include <string>

namespace pinfold::testing::cli_trace_test {
namespace {

class cli_trace : public ::testing::Test {
 protected:
  ~cli_trace() override { std::remove(path_.c_str()); }

  outcome record(const std::string& program) const { return run("trace -o '" + path_ + "' -- " + program); }
  [[nodiscard]] recorded_trace recorded() const {
    auto trace = read_trace(path_);
    EXPECT_TRUE(trace) << trace.error().where << ": " << describe(trace.error().cause);
    return trace ? *std::move(trace) : recorded_trace{};
  }

  const std::string path_ = ::testing::TempDir() + "pinfold_cli_trace_" + std::to_string(getpid());
  const std::string imports_ = "'" + tool() + "' perf import --json --sizes 4K --iterations 50 --repeats 1";
};

TEST_F(cli_trace, records_an_unmodified_program) {
  const auto seen = record(imports_);
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  EXPECT_NE(seen.complaints.find(" caches in " + path_), std::string::npos) << seen.complaints;
  EXPECT_FALSE(rows_of(seen).empty()) << "the program's own output is left alone";
  const auto trace = recorded();
  EXPECT_GE(trace.caches.size(), 1U);
  EXPECT_GE(trace.requests.size(), 50U);
  EXPECT_FALSE(trace.requests.front().hit);
  EXPECT_GT(trace.requests.front().opened_for.count(), 0);
  EXPECT_TRUE(trace.requests.back().hit);
}

TEST_F(cli_trace, an_earlier_trace_is_replaced) {
  record(imports_);
  const auto caches = recorded().caches.size();
  record(imports_);
  EXPECT_EQ(recorded().caches.size(), caches);
}

TEST_F(cli_trace, an_earlier_trace_stays_where_nothing_is_recorded) {
  record(imports_);
  const auto earlier = contents_of(path_);
  for (const char* program : {"/nonexistent/typo", "/etc/passwd", "true", "sh -c 'kill -TERM $$'"}) {
    EXPECT_NE(record(program).status, 0) << program;
    EXPECT_EQ(contents_of(path_), earlier) << program;
  }
  for (const auto& one : std::filesystem::directory_iterator(::testing::TempDir()))
    EXPECT_EQ(one.path().string().find(path_ + "."), std::string::npos) << one.path() << " was left";
}

TEST_F(cli_trace, file_that_the_program_makes_under_its_name_stays) {
  const auto seen = record("sh -c \"" + imports_ + " >/dev/null; echo thesis >'" + path_ + "'\"");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("not a trace"), std::string::npos) << seen.complaints;
  EXPECT_EQ(contents_of(path_), "thesis\n");
  const auto beside = seen.complaints.find("the trace is ");
  ASSERT_NE(beside, std::string::npos) << seen.complaints;
  auto name = seen.complaints.substr(beside + 13);
  name.resize(name.find('\n'));
  EXPECT_TRUE(trace_file::open(name));
  std::filesystem::remove(name);
}

TEST_F(cli_trace, concurrent_processes_share_the_file) {
  record(imports_);
  const auto alone = recorded();
  const auto seen = record("sh -c \"cd / && (" + imports_ + " >/dev/null & " + imports_ + " >/dev/null; wait)\"");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  const auto trace = recorded();
  EXPECT_EQ(trace.caches.size(), 2 * alone.caches.size());
  EXPECT_EQ(trace.requests.size(), 2 * alone.requests.size());
  std::set<std::string> processes;
  for (const auto& one : trace.requests) processes.insert(trace.caches[one.cache].substr(0, trace.caches[0].find('.')));
  EXPECT_EQ(processes.size(), 2U);
}

TEST_F(cli_trace, program_without_a_cache_is_reported) {
  const auto seen = record("true");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("true created no cache"), std::string::npos) << seen.complaints;
  EXPECT_EQ(record("sh -c 'exit 7'").status, 7) << "its own failure goes first";
}

TEST_F(cli_trace, the_programs_status_is_passed_on) {
  EXPECT_EQ(record("sh -c \"" + imports_ + " >/dev/null; exit 3\"").status, 3);
  EXPECT_FALSE(recorded().requests.empty());
}

TEST_F(cli_trace, killed_program_is_reported) {
  const auto seen = record("sh -c 'kill -TERM $$'");
  EXPECT_EQ(seen.status, 128 + 15);
  EXPECT_NE(seen.complaints.find("killed by signal 15"), std::string::npos) << seen.complaints;
}

TEST_F(cli_trace, program_that_cannot_be_run_is_reported) {
  EXPECT_EQ(record("/nonexistent/program").status, 127);
  EXPECT_EQ(record("/etc/hostname").status, 126);
  const auto seen = record("/nonexistent/program");
  EXPECT_NE(seen.complaints.find("/nonexistent/program: No such file"), std::string::npos) << seen.complaints;
}

TEST_F(cli_trace, wrong_usage_is_explained_and_exits_with_2) {
  expect_refused("trace", "--output");
  expect_refused("trace -o '" + path_ + "'", "program");
  expect_refused("trace -o " + std::string(300, 'x') + " -- true", "cannot write the file: File name too long");
  expect_refused("trace -o /nonexistent/trace -- true", "/nonexistent/trace");
  std::ofstream(path_) << "a letter\n";
  expect_refused("trace -o '" + path_ + "' -- true", "not a trace");
  EXPECT_EQ(contents_of(path_), "a letter\n");
}

}  // namespace
}  // namespace pinfold::testing::cli_trace_test

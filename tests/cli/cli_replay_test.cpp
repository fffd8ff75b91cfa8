// SPDX-License-Identifier: BSD-3-Clause
// `pinfold replay` on made-up traces, on files, and on files that are no trace.
#include "support/processes/background_run.hpp"
#include "support/processes/tool_run.hpp"

#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <thread>

namespace pinfold::testing::cli_replay_test {
namespace {

class cli_replay : public ::testing::Test {
 protected:
  ~cli_replay() override { std::remove(path_.c_str()); }

  std::string trace_of(const std::string& lines) const {
    std::ofstream(path_) << "# pinfold trace 1\n" << lines;
    return "'" + path_ + "'";
  }

  const std::string path_ = ::testing::TempDir() + "pinfold_cli_replay_" + std::to_string(getpid());
};

constexpr const char* cache_and_requests =
    "cache 1.1 mine\n"
    "1.1 0 0x1000 4096 0x1000 4096 100\n"
    "1.1 0 0x2000 4096 0x2000 4096 100\n"
    "1.1 0 0x1000 4096 0x1000 4096 hit\n"
    "1.1 0 0x3000 4096 0x3000 4096 100\n"
    "1.1 0 0x1000 4096 0x1000 4096 hit\n";

TEST_F(cli_replay, every_policy_is_compared_with_lru) {
  std::map<std::string, int> seen;
  for (const auto& row : rows_of(run("replay --json --synthetic mixed --budget 10%,50%"))) {
    expect_flat(row);
    ++seen[row.at("policy")];
    EXPECT_EQ(row.at("hits").get<int>() + row.at("misses").get<int>(), row.at("requests"));
    EXPECT_EQ(row.at("costs"), "uring");
    EXPECT_GT(row.at("cost_ns"), 0);
    if (row.at("policy") == "lru") {
      EXPECT_EQ(row.at("x_lru"), 1.0);
    }
  }
  for (const char* name : {"lru", "second-chance", "sieve", "classes-2", "offline"}) EXPECT_EQ(seen[name], 2) << name;
}

// All synthetic traces take seconds. When the first row is complete depends on the machine.
TEST_F(cli_replay, an_interrupt_prints_the_complete_rows) {
  std::string note;
  for (std::chrono::milliseconds after{200}; after < std::chrono::seconds(30); after *= 2) {
    background_run running("replay --json --synthetic all");
    std::this_thread::sleep_for(after);
    ::kill(running.pid(), SIGINT);
    const auto ended = running.ended_within(std::chrono::seconds(100));
    ASSERT_TRUE(ended);
    if (ended->status == 0) break;  // faster than the signal
    const auto parsed = json::parse(ended->out, nullptr, false);
    if (!parsed.is_object()) continue;  // it came before the first trace was made
    note = parsed.at("notes").at(0);
    if (!parsed.at("rows").empty()) break;
  }
  EXPECT_EQ(note, "interrupted: these rows were complete");
}

TEST_F(cli_replay, runs_with_the_same_seed_print_the_same) {
  const auto text = run("replay --synthetic shift --budget 25% --policies second-chance,lru");
  EXPECT_EQ(text.status, 0) << text.complaints;
  EXPECT_EQ(text.out, run("replay --synthetic shift --budget 25% --policies second-chance,lru").out);
  EXPECT_NE(text.out, run("replay --synthetic shift --budget 25% --policies second-chance,lru --seed 2").out);
}

TEST_F(cli_replay, costs_of_a_recorded_trace_are_the_recorded_ones) {
  const auto rows =
      rows_of(run("replay --json --budget 8K --policies lru,second-chance " + trace_of(cache_and_requests)));
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("trace"), "1.1 mine");
    EXPECT_EQ(row.at("costs"), "recorded");
    EXPECT_EQ(row.at("budget_bytes"), 8192);
    EXPECT_EQ(row.at("objects"), 3);
    EXPECT_EQ(row.at("misses"), 3);
    EXPECT_EQ(row.at("evictions"), 1);
    EXPECT_EQ(row.at("cost_ns"), 300.0);
  }
  const auto counted = rows_of(run("replay --json --budget 1 --policies lru " + trace_of(cache_and_requests)));
  ASSERT_EQ(counted.size(), 1U);
  EXPECT_EQ(counted[0].at("budget_entries"), 1);
  EXPECT_EQ(counted[0].at("misses"), 5);
  const auto modelled =
      rows_of(run("replay --json --budget 8K --policies lru --costs handle " + trace_of(cache_and_requests)));
  ASSERT_EQ(modelled.size(), 1U);
  EXPECT_EQ(modelled[0].at("cost_ns"), 300'000.0);
}

TEST_F(cli_replay, tables_are_narrow) {
  for (const char* policies : {"", " --policies second-chance"}) {
    const auto seen = run(std::string("replay --synthetic shift,mixed --budget 10%") + policies);
    std::istringstream lines(seen.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    EXPECT_NE(seen.out.find("shift, 10% = 25.6 MiB\n"), std::string::npos) << seen.out;
  }
}

TEST_F(cli_replay, text_output_has_a_table) {
  const auto seen = run("replay " + trace_of(cache_and_requests));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* word :
       {"1.1 mine: 5 requests of 3 registrations, 12 KiB", "costs: recorded", "x lru", "second-chance"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

TEST_F(cli_replay, a_terminal_need_not_obey_a_trace) {
  std::string lines = cache_and_requests;
  lines.replace(lines.find("mine"), 4, "\x1b[2J\xff");
  for (const char* form : {"replay ", "replay --json "}) {
    const auto seen = run(form + trace_of(lines));
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    EXPECT_NE(seen.out.find("?[2J?"), std::string::npos) << seen.out;
    EXPECT_EQ(seen.out.find('\x1b'), std::string::npos);
  }
}

TEST_F(cli_replay, a_bad_trace_is_refused_with_its_line) {
  expect_refused("replay " + trace_of("cache 1.1 mine\n1.1 0 0x1000 4096 0x1000 nonsense hit\n"), path_ + ":3: ");
  expect_refused("replay " + trace_of("cache 1.1 mine\n"), "no request");
  expect_refused("replay " + trace_of("cache 1.1 mine\n1.1 0 0x1000 4096 0x1000 4096 9\n"), "no cache has two");
  std::ofstream(path_) << "a letter\n";
  expect_refused("replay '" + path_ + "'", path_ + ":1: ");
  std::ofstream(path_) << "";
  expect_refused("replay '" + path_ + "'", "empty");
  expect_refused("replay /nonexistent/trace", "ENOENT");
  expect_refused("replay /dev/zero", "/dev/zero:1: ");
}

TEST_F(cli_replay, wrong_usage_is_explained_and_exits_with_2) {
  expect_refused("replay", "--synthetic");
  expect_refused("replay --synthetic nonsense", "nonsense");
  expect_refused("replay --synthetic loop " + trace_of(cache_and_requests), "excludes");
  for (const char* budget : {"0", "0%", "101%", "-1", "x", "%", "1.5", "1.5Q", "inf"})
    expect_refused(std::string("replay --synthetic loop --budget ") + budget, "--budget");
  expect_refused("replay --synthetic loop --policies nonsense", "nonsense");
  expect_refused("replay --synthetic loop --costs nonsense", "nonsense");
  expect_refused("replay --synthetic loop --misjudge 0.5", "--misjudge");
  EXPECT_EQ(run("replay --help").status, 0);
}

}  // namespace
}  // namespace pinfold::testing::cli_replay_test

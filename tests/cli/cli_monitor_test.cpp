// SPDX-License-Identifier: BSD-3-Clause
// The tool's report on monitors, and its measurements of them. No time is judged.
#include "support/processes/tool_run.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace pinfold::testing::cli_monitor_test {
namespace {

const std::string quick = " --json --repeats 1 --seconds 0.01 --regions 500 --many 5000 ";

json facts() {
  const auto seen = run("info --json");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  return json::parse(seen.out);
}

std::set<std::string> proven_in(const json& whole) {
  std::set<std::string> names;
  for (const auto& one : whole.at("monitors"))
    if (one.at("proven")) names.insert(one.at("name"));
  return names;
}

TEST(cli_monitors, R33_info_reports_for_each_monitor_whether_it_passed_the_self_test) {
  const auto whole = facts();
  std::set<std::string> names;
  for (const auto& one : whole.at("monitors")) {
    expect_flat(one);
    names.insert(one.at("name"));
    EXPECT_EQ(one.at("proven").get<bool>(), one.at("why_not").get<std::string>().empty()) << one;
  }
  for (const char* name : {"hooks", "userfaultfd"}) EXPECT_TRUE(names.contains(name)) << name;
  const auto automatic = whole.at("automatic").get<std::string>();
  const bool hooks_do_not_suffice = automatic.find("hooks alone: ") != std::string::npos;
  EXPECT_EQ(automatic.starts_with("none"), proven_in(whole).empty() || hooks_do_not_suffice) << automatic;
}

TEST(cli_monitors, R33_info_lists_the_monitors_that_cover_each_hazard) {
  const auto whole = facts();
  const auto proven = proven_in(whole);
  std::map<std::string, json> hazards;
  for (const auto& one : whole.at("hazards")) {
    EXPECT_EQ(one.size(), 3U) << one;
    EXPECT_TRUE(one.at("happens").is_boolean() || one.at("happens").is_null()) << one;
    for (const auto& who : one.at("covered_by")) EXPECT_TRUE(proven.contains(who)) << one;
    EXPECT_TRUE(hazards.emplace(one.at("event"), one).second) << "twice: " << one;
  }
  for (const char* event : {"munmap", "mremap away", "madvise DONTNEED", "ftruncate", "free of 64 MiB"})
    ASSERT_TRUE(hazards.contains(event)) << event;
  EXPECT_EQ(hazards.at("munmap").at("happens"), true);
  EXPECT_EQ(hazards.at("munmap").at("covered_by").size(), proven.size());
}

// Removes the line breaks of a table.
std::string in_one_line(const std::string& text) {
  std::string all;
  std::istringstream words(text);
  for (std::string word; words >> word;) all += word + ' ';
  return all;
}

TEST(cli_monitors, text_output_lists_monitors_and_hazards_of_explicit_calls) {
  const auto whole = facts();
  const auto seen = run("info");
  for (const char* word :
       {"Monitors", "announce_gone", "automatic", "takes ", "Monitors that see memory unmapped or replaced"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
  const auto& all = whole.at("hazards");
  const bool uncovered = std::any_of(all.begin(), all.end(), [](const json& one) {
    return one.at("happens") == true && one.at("covered_by").empty();
  });
  EXPECT_EQ(seen.out.find("manual calls only") != std::string::npos, uncovered) << seen.out;
  const auto shown = in_one_line(seen.out);
  for (const auto& one : all) EXPECT_NE(shown.find(one.at("event").get<std::string>()), std::string::npos) << one;
}

TEST(cli_monitors, settings_choose_the_monitors) {
  const auto seen = run("info --config", "PINFOLD_MONITOR=userfaultfd+manual PINFOLD_STRICT=on");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* line : {"\nPINFOLD_MONITOR=manual+userfaultfd\n", "\nPINFOLD_STRICT=on\n"})
    EXPECT_NE(seen.out.find(line), std::string::npos) << line << seen.out;
  const auto wrong = run("info --config", "PINFOLD_MONITOR=nothing");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.complaints.find("userfaultfd"), std::string::npos) << wrong.complaints;
}

// Returns the rows of one case by subject; rows that a host cannot have say why.
std::multimap<std::string, json> measured(const std::string& which) {
  std::multimap<std::string, json> found;
  for (const auto& row : rows_of(run("perf monitor --case " + which + quick))) {
    expect_flat(row);
    EXPECT_EQ(row.at("case"), which);
    EXPECT_EQ(row.at("errors"), 0) << row;
    if (row.contains("skipped")) {
      EXPECT_NE(row.at("skipped"), "") << row;
    } else {
      found.emplace(row.at("subject"), row);
    }
  }
  EXPECT_GT(found.count("manual"), 0U) << which;
  for (const auto& name : proven_in(facts())) EXPECT_GT(found.count(name), 0U) << which << ": " << name;
  return found;
}

void expect_difference(const json& row) {
  for (const char* key : {"ns_per_op", "ns_without"}) EXPECT_GT(row.at(key), 0) << key << " in " << row;
  EXPECT_NEAR(row.at("ns_extra").get<double>(), row.at("ns_per_op").get<double>() - row.at("ns_without").get<double>(),
              0.01)
      << row;
}

TEST(cli_perf_monitor, unrelated_munmap_compares_with_no_cache) {
  const auto rows = measured("unrelated-munmap");
  EXPECT_EQ(rows.count("none"), 1U);
  for (const auto& [subject, row] : rows) {
    EXPECT_EQ(row.at("regions"), 500);
    expect_difference(row);
  }
}

TEST(cli_perf_monitor, big_munmap_drains_everything) {
  for (const auto& [subject, row] : measured("big-munmap")) {
    EXPECT_EQ(row.at("regions"), 5000);
    EXPECT_EQ(row.at("left"), 0) << row;
    expect_difference(row);
    EXPECT_GE(row.at("drain_ns").get<double>(), row.at("next_ns").get<double>()) << row;
  }
}

TEST(cli_perf_monitor, R35_cached_munmap_registers_again_each_time) {
  std::set<std::string> placements;
  for (const auto& [subject, row] : measured("cached-munmap")) {
    expect_difference(row);
    placements.insert(row.at("placement"));
    if (subject == "none") {
      EXPECT_GT(row.at("stale"), 0) << "nothing is registered there: the count cannot fail";
    } else {
      EXPECT_EQ(row.at("stale"), 0) << row;
    }
  }
  EXPECT_TRUE(placements.contains("same-cpu"));
}

TEST(cli_perf_monitor, hits_beside_munmap_are_measured_for_each_kind_of_memory) {
  std::set<std::string> kinds;
  for (const auto& row : rows_of(run("perf monitor --case hits-beside-munmap" + quick))) {
    if (row.contains("skipped")) continue;
    kinds.insert(row.at("meanwhile"));
    EXPECT_EQ(row.at("errors"), 0) << row;
    EXPECT_GT(row.at("p50_ns"), 0) << row;
    EXPECT_GE(row.at("p99_ns"), row.at("p50_ns")) << row;
    EXPECT_GE(row.at("p999_ns"), row.at("p99_ns")) << row;
    EXPECT_GE(row.at("longest_ns"), row.at("p999_ns")) << row;
    EXPECT_EQ(row.at("unmaps_per_s") > 0, row.at("meanwhile") != "nothing") << row;
  }
  if (kinds.empty()) GTEST_SKIP() << "one CPU";
  EXPECT_EQ(kinds, (std::set<std::string>{"nothing", "registered", "unrelated"}));
}

TEST(cli_perf_monitor, hits_are_compared_with_the_manual_monitor) {
  const auto rows = measured("hits");
  EXPECT_EQ(rows.find("manual")->second.at("ns_extra"), 0);
  for (const auto& [subject, row] : rows) EXPECT_GT(row.at("ns_per_op"), 0) << row;
}

TEST(cli_perf_monitor, text_output_has_a_table_for_each_case) {
  const auto seen = run("perf monitor --repeats 1 --seconds 0.01 --regions 100 --many 1000");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* word : {"unrelated-munmap: ", "big-munmap: ", "cached-munmap: ", "hits-beside-munmap: ", "hits: ",
                           "extra[ns]", "next acquire[us]", "x quiet", "manual"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

TEST(cli_perf_monitor, wrong_usage_is_explained_and_exits_with_2) {
  expect_refused("perf monitor --case nonsense", "nonsense");
  expect_refused("perf monitor --regions 0", "--regions");
  expect_refused("perf monitor --many 0", "--many");
  expect_refused("perf monitor --repeats 0", "--repeats");
  expect_refused("perf monitor --peers-dir /", "--peers");
}

}  // namespace
}  // namespace pinfold::testing::cli_monitor_test

// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf startup`: everything requested is measured and reported. Times are judged only where the driver is
// simulated, and only against what it has to take.
#include "support/processes/tool_run.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>

namespace pinfold::testing::cli_startup_test {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

void expect_timeline(const json& row) {
  expect_flat(row);
  EXPECT_EQ(row.at("errors"), 0) << row;
  EXPECT_GT(row.at("seconds"), 0) << row;
  EXPECT_GT(row.at("gb_per_s"), 0) << row;
  EXPECT_GT(row.at("longest_call_ms"), 0) << row;
  EXPECT_LE(row.at("first_ms").get<double>(), row.at("seconds").get<double>() * 1e3 + 1) << row;
  EXPECT_LE(row.at("half_seconds").get<double>(), row.at("seconds").get<double>() + 1e-3) << row;
}

TEST(cli_startup, simulated_driver_is_measured_by_kind_pages_and_workers) {
  const auto seen = run("perf startup --json --size 16G --workers 1,4 --time-limit 4 --repeats 1");
  std::set<std::string> found;
  for (const auto& row : rows_of(seen)) {
    expect_timeline(row);
    EXPECT_EQ(row.at("case"), "simulated");
    EXPECT_EQ(row.at("size"), 16 * gib);
    found.insert(row.at("driver").get<std::string>() + " " + row.at("pages").get<std::string>() + " " +
                 row.at("method").get<std::string>() + " " + row.at("workers").dump());
  }
  std::set<std::string> wanted;
  for (const std::string driver : {"serialises", "parallel"})
    for (const std::string pages : {"4k", "huge"})
      for (const std::string how : {"one thread 1", "background 1", "background 4"})
        wanted.insert(driver + " " + pages + " " + how);
  EXPECT_EQ(found, wanted);
  EXPECT_NE(json::parse(seen.out).at("notes").dump().find("simulated at measured costs"), std::string::npos);
}

/// Expects each time to be at least what the driver takes. Returns whether the first of four pieces was ready before
/// half of the time was over wherever the pieces follow each other.
bool begins_early() {
  bool early = true;
  for (const auto& row : rows_of(run("perf startup --json --size 4G --workers 1,4 --time-limit 100"))) {
    if (row.at("pages") != "4k") continue;
    EXPECT_EQ(row.at("time_scale"), 1);
    const bool shared = row.at("driver") == "parallel" && row.at("method") == "background";
    const auto cost = 4.0 * gib * 0.1e-9;
    EXPECT_GE(row.at("seconds").get<double>(), cost / (shared ? row.at("workers").get<double>() : 1) * 0.999) << row;
    const bool whole = row.at("method") == "one thread";
    EXPECT_GE(row.at("longest_call_ms").get<double>(), (whole ? cost : cost / 4) * 999) << row;
    const auto first = row.at("first_ms").get<double>();
    if (whole) {
      EXPECT_GE(first, cost * 999) << row;
    } else if (!shared) {
      early = early && first < row.at("seconds").get<double>() * 500;
    }
  }
  return early;
}

TEST(cli_startup, simulated_times_are_those_of_the_costs) {
  bool early = false;  // the thread that waits for the first piece may get its processor late
  for (int tries = 0; tries < 8 && !early && !HasFailure(); ++tries) early = begins_early();
  EXPECT_TRUE(early);
}

TEST(cli_startup, calls_of_one_thread_are_cut_at_the_limit_of_the_driver) {
  for (const auto& row : rows_of(run("perf startup --json --size 4G --limit 1G --workers 1 --time-limit 100"))) {
    if (row.at("pages") != "4k" || row.at("method") != "one thread") continue;
    const auto last_three_ms = 3 * gib * 0.1e-9 * 999;  // the calls follow the first
    EXPECT_LE(row.at("first_ms").get<double>() + last_three_ms, row.at("seconds").get<double>() * 1e3 + 1) << row;
  }
}

TEST(cli_startup, long_simulations_are_scaled_down_and_say_so) {
  const auto seen = run("perf startup --json --time-limit 2 --workers 8");
  bool scaled = false;
  for (const auto& row : rows_of(seen)) {
    EXPECT_EQ(row.at("size"), 500 * gib);
    scaled = scaled || row.at("time_scale") > 1;
    EXPECT_GE(row.at("seconds").get<double>(), row.at("pages") == "4k" ? 53.6 / 8 : 0.35 / 8) << row;
  }
  EXPECT_TRUE(scaled);
  EXPECT_NE(json::parse(seen.out).at("notes").dump().find("times are multiplied by"), std::string::npos);
}

TEST(cli_startup, real_memory_is_measured_by_registrar_and_pages) {
  const auto seen = run("perf startup --json --case real --size 16M --piece 4M --workers 1,2");
  std::set<std::string> found;
  for (const auto& row : rows_of(seen)) {
    EXPECT_EQ(row.at("errors"), 0) << row;
    if (!row.contains("skipped")) expect_timeline(row);
    found.insert(row.at("registrar").get<std::string>());
    EXPECT_TRUE(row.at("present_by") == "driver" || row.at("present_by") == "workers") << row;
  }
  EXPECT_TRUE(found.contains("mlock"));
  EXPECT_TRUE(found.contains("io_uring") || seen.out.find("io_uring is not measured") != std::string::npos);
}

TEST(cli_startup, hits_are_measured_with_and_without_registration) {
  const auto seen = run("perf startup --json --case undisturbed --size 64M --piece 4M --workers 2 --seconds 0.05");
  std::set<std::string> found;
  for (const auto& row : rows_of(seen)) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0) << row;
    found.insert(row.at("meanwhile"));
    if (row.contains("skipped")) continue;
    EXPECT_GT(row.at("iterations"), 0) << row;
    EXPECT_TRUE(row.contains("p99_more_ns")) << row;
  }
  EXPECT_EQ(found.size(), 3U);
  EXPECT_TRUE(found.contains("nothing"));
}

TEST(cli_startup, text_output_has_labelled_columns) {
  const auto seen = run("perf startup --size 1G --time-limit 0.1");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* word :
       {"x 1 worker", "first piece[ms]", "half[s]", "longest call[ms]", "serialises", "simulated at"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

TEST(cli_startup, wrong_usage_is_explained_and_exits_with_2) {
  expect_each_refused({{"perf startup --case nonsense", "nonsense"},
                       {"perf startup --size 1000", "2 MiB"},
                       {"perf startup --size lots", "not a size"},
                       {"perf startup --size unlimited", "--size"},
                       {"perf startup --case real --size 9999T", "memory"},
                       {"perf startup --piece 3M", "--piece"},
                       {"perf startup --limit 1", "too small"},
                       {"perf startup --workers 0", "--workers"},
                       {"perf startup --fraction 2", "--fraction"},
                       {"perf startup --repeats 0", "--repeats"},
                       {"perf startup --time-limit 0", "--time-limit"}});
}

TEST(cli_startup, restore_registers_hot_buffers_first) {
  bool first = false;  // the thread that looks for the hot ones may get its processor late
  for (int tries = 0; tries < 10 && !first && !HasFailure(); ++tries) {
    const auto row = rows_of(run("perf startup --json --case restore --size 1G --workers 1")).at(0);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_EQ(row.at("registrations"), 2000);
    first = row.at("hot_ns").get<double>() < row.at("total_ns").get<double>() / 2;
  }
  EXPECT_TRUE(first) << "1 % of the buffers";
}

}  // namespace
}  // namespace pinfold::testing::cli_startup_test

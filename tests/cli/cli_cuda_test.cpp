// SPDX-License-Identifier: BSD-3-Clause
// The tool with GPU memory. Runs over the emulated driver, also where there is a GPU: the figures are not tested.
#include "support/processes/tool_run.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace pinfold::testing::cli_cuda_test {
namespace {

const std::string emulation = PINFOLD_EMULATED_CUDA;
const std::string over_emulation = "PINFOLD_CUDA_LIBRARY='" + emulation + "'";
const std::string without_driver = "PINFOLD_CUDA_LIBRARY=/nowhere/libcuda.so.1";

outcome run_emulated(const std::string& arguments, const std::string& more = "") {
  return run(arguments, over_emulation + " " + more);
}

void expect_words(const outcome& seen, const std::set<std::string>& words) {
  for (const auto& word : words) EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

json whole(const outcome& seen) { return json::parse(seen.out, nullptr, false); }

TEST(cli_cuda, info_marks_the_emulation) {
  const auto seen = run_emulated("info", "EMULATED_CUDA_DEVICES=2 EMULATED_CUDA_MEMORY_MIB=512");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  expect_words(seen,
               {"CUDA", "(emulated)", "device 0", "device 1", "512 MiB", "segments, pools", "pools", "raw handles"});
}

TEST(cli_cuda, info_json_lists_devices) {
  const auto seen = run_emulated("info --json", "EMULATED_CUDA_DEVICES=2");
  ASSERT_EQ(seen.status, 0) << seen.complaints;
  const auto cuda = whole(seen).at("cuda");
  EXPECT_TRUE(cuda.at("works"));
  EXPECT_TRUE(cuda.at("emulated"));
  EXPECT_TRUE(cuda.at("driver").get<std::string>().starts_with("CUDA "));
  ASSERT_EQ(cuda.at("devices").size(), 2U);
  for (const auto& device : cuda.at("devices")) {
    expect_flat(device);
    EXPECT_NE(device.at("name").get<std::string>().find("emulated"), std::string::npos);
    EXPECT_EQ(device.at("memory"), 1024U << 20);
  }
}

TEST(cli_cuda, info_without_a_driver_prints_the_reason) {
  const auto seen = run("info", without_driver);
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  expect_words(seen, {"cannot load the CUDA driver", "/nowhere/libcuda.so.1"});
  const auto cuda = whole(run("info --json", without_driver)).at("cuda");
  EXPECT_FALSE(cuda.at("works"));
  EXPECT_FALSE(cuda.at("emulated"));
  EXPECT_TRUE(cuda.at("devices").empty());
}

TEST(cli_cuda, other_subcommands_without_a_driver_or_device_exit_with_1_and_the_reason) {
  for (const auto& [settings, word] : {std::pair{without_driver, "/nowhere/libcuda.so.1"},
                                       std::pair{over_emulation + " EMULATED_CUDA_DEVICES=0", "no device"}}) {
    for (const char* arguments : {"perf import --cuda", "perf import --cuda --case weight-sync", "demo --emulated"}) {
      const auto seen = run(arguments, settings);
      EXPECT_EQ(seen.status, 1) << arguments;
      EXPECT_NE(seen.complaints.find(word), std::string::npos) << arguments << ": " << seen.complaints;
    }
  }
  const auto other = run_emulated("perf import --cuda --device 7");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.complaints.find("device"), std::string::npos) << other.complaints;
}

TEST(cli_cuda, wrong_usage_is_explained) {
  expect_refused("perf import --case weight-sync", "--cuda");
  expect_refused("perf import --to host", "--cuda");
  expect_refused("perf import --cuda --case parallel-opens", "parallel-opens");
  expect_refused("perf import --cuda --threads 2", "--threads");
  expect_refused("perf import --cuda --to disk", "disk");
  expect_refused("demo --library x", "--emulated");
  expect_refused("demo --emulated --via scm", "--via");
}

class cli_cuda_copy : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(cli_cuda_copy, reports_flat_rows_without_errors) {
  const auto [memory, to] = GetParam();
  const auto seen =
      run_emulated(std::string("perf import --cuda --json --sizes 100,4K,3M --iterations 20 --repeats 2 ") +
                   "--memory " + memory + " --to " + to);
  std::multiset<std::string> subjects;
  for (const auto& row : rows_of(seen)) {
    expect_flat(row);
    subjects.insert(row.at("subject"));
    EXPECT_EQ(row.at("case"), "copy");
    EXPECT_TRUE(row.at("emulated"));
    EXPECT_EQ(row.at("memory"), memory);
    EXPECT_EQ(row.at("to"), to);
    EXPECT_EQ(row.at("iterations"), 20);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_GT(row.at("ns_per_op"), 0);
  }
  for (const char* subject : {"pinfold", "uncached", "floor"}) EXPECT_EQ(subjects.count(subject), 3U) << subject;
  EXPECT_NE(whole(seen).at("notes").dump().find("EMULATED"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(all, cli_cuda_copy,
                         ::testing::Values(std::pair{"allocations", "device"}, std::pair{"allocations", "host"},
                                           std::pair{"segments", "device"}, std::pair{"segments", "host"}),
                         [](const auto& one) { return std::string(one.param.first) + "_to_" + one.param.second; });

TEST(cli_cuda, sizes_that_do_not_fit_are_skipped_with_a_message) {
  const auto seen =
      run_emulated("perf import --cuda --sizes 4K,64M --iterations 2 --repeats 1", "EMULATED_CUDA_MEMORY_MIB=64");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  expect_words(seen, {"emulated", "EMULATED", "skipped: 64 MiB", "x uncached"});
}

TEST(cli_cuda, a_budget_holds_with_gpu_memory) {
  for (const char* mode : {"--no-retain", "--max-count 1", "--max-bytes 64K"}) {
    const auto seen =
        run_emulated(std::string("perf import --cuda --json --sizes 64K --iterations 10 --repeats 1 ") + mode);
    for (const auto& row : rows_of(seen)) EXPECT_EQ(row.at("errors"), 0) << mode;
  }
}

TEST(cli_cuda, opens_and_closes_are_measured_by_memory_size_and_held_mappings) {
  std::multiset<std::string> points;
  for (const auto& row : rows_of(run_emulated(
           "perf import --cuda --case open --json --sizes 4K,4M --held 0,5 --iterations 10 --repeats 1"))) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_EQ(row.at("iterations"), 10);
    EXPECT_GT(row.at("ns_per_op"), 0);
    EXPECT_GT(row.at("close_ns_per_op"), 0);
    points.insert(row.at("memory").get<std::string>() + " " + row.at("size").dump() + " " + row.at("held").dump());
  }
  EXPECT_EQ(points, (std::multiset<std::string>{"allocations 4096 0", "allocations 4194304 0", "allocations 4096 5",
                                                "segments 4096 0", "segments 4194304 0", "segments 4096 5"}));
}

TEST(cli_cuda, comparing_buffer_ids_costs_a_call_of_the_driver_on_each_hit) {
  std::map<std::string, json> rows;
  for (const auto& row : rows_of(run_emulated("perf import --cuda --case identity --json --seconds 0.02 --repeats 3",
                                              "EMULATED_CUDA_DELAY=cuPointerGetAttribute=500"))) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0);
    rows[row.at("subject")] = row;
  }
  EXPECT_GT(rows.at("announced").at("p50_ns"), 0);
  EXPECT_LT(rows.at("announced").at("p50_ns"), 500'000);
  EXPECT_GE(rows.at("compared").at("p50_ns"), 500'000);
}

class cli_weight_sync : public ::testing::TestWithParam<const char*> {};

/// Runs the case, and returns whether the cache saved time.
bool saves_time(const char* memory) {
  const auto seen = run_emulated(std::string("perf import --cuda --case weight-sync --json --allocations 20 "
                                             "--requests 250 --memory ") +
                                     memory,
                                 "EMULATED_CUDA_DELAY=cuIpcOpenMemHandle=200,cuMemImportFromShareableHandle=200");
  std::map<std::string, json> rows;
  for (const auto& row : rows_of(seen)) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_EQ(row.at("requests"), 250);
    EXPECT_EQ(row.at("allocations"), 20);
    EXPECT_EQ(row.at("iterations"), 250);
    rows[row.at("subject")] = row;
  }
  EXPECT_EQ(rows.at("uncached").at("opens"), 250);
  EXPECT_EQ(rows.at("pinfold").at("opens"), 20);
  EXPECT_GT(rows.at("uncached").at("seconds"), 250 * 200e-6);
  EXPECT_NE(whole(seen).at("notes").dump().find("cuIpcOpenMemHandle=200"), std::string::npos);
  return rows.at("uncached").at("seconds") > rows.at("pinfold").at("seconds");
}

TEST_P(cli_weight_sync, opens_each_allocation_once_with_the_cache) {
  bool saved = false;  // 46 ms; a busy machine may take the processor away for longer
  for (int tries = 0; tries < 10 && !saved && !HasFailure(); ++tries) saved = saves_time(GetParam());
  EXPECT_TRUE(saved);
}

INSTANTIATE_TEST_SUITE_P(of, cli_weight_sync, ::testing::Values("allocations", "segments"));

TEST(cli_cuda, budget_causes_more_opens_and_no_error) {
  for (const auto& row : rows_of(
           run_emulated("perf import --cuda --case weight-sync --json --allocations 8 --requests 32 --max-count 4"))) {
    EXPECT_EQ(row.at("errors"), 0);
    if (row.at("subject") == "pinfold") {
      EXPECT_GT(row.at("opens"), 8);
    }
  }
}

TEST(cli_cuda, demo_shows_stale_bytes_and_how_handles_prevent_them) {
  for (const auto& settings : {std::pair{std::string("demo --emulated"), over_emulation},
                               std::pair{"demo --emulated --library '" + emulation + "'", std::string()}}) {
    const auto seen = run(settings.first, settings.second);
    EXPECT_EQ(seen.status, 0) << seen.out << seen.complaints;
    expect_words(seen, {"EMULATED", "(not real)", "one open", "by address", "OLD", "by handle", "stale_handle",
                        "clean end", "All checks passed."});
  }
}

TEST(cli_cuda, demo_without_the_emulations_path_exits_with_2) {
  const auto seen = run("demo --emulated", "env -u PINFOLD_CUDA_LIBRARY");
  EXPECT_EQ(seen.status, 2);
  EXPECT_NE(seen.complaints.find("--library"), std::string::npos) << seen.complaints;
}

}  // namespace
}  // namespace pinfold::testing::cli_cuda_test

// SPDX-License-Identifier: BSD-3-Clause
// The tool with this process's own memory. Passes also as an ordinary user with a limit of 8 MiB.
#include "support/host/process_limits.hpp"
#include "support/processes/tool_run.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <sys/resource.h>
#include <tuple>
#include <utility>

namespace pinfold::testing::cli_local_test {
namespace {

json row_named(const json& rows, const std::string& name) {
  for (const auto& row : rows)
    if (row.at("name") == name) return row;
  return {};
}

// Everything here goes through io_uring, which some hosts and containers forbid.
class cli_local : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto ring = row_named(rows_of(run("info --json")), "io_uring");
    ASSERT_TRUE(ring.is_object());
    if (!ring.at("works").get<bool>()) GTEST_SKIP() << ring.at("why_not");
  }

  const std::string here = " --dir '" + ::testing::TempDir() + "'";
};

void expect_latency(const json& row) {
  EXPECT_GT(row.at("ns_per_op"), 0);
  EXPECT_GE(row.at("p99_ns"), row.at("p50_ns"));
  EXPECT_GE(row.at("p999_ns"), row.at("p99_ns"));
}

// Returns the files that a run of the tool made and did not remove.
std::set<std::string> left_behind() {
  std::set<std::string> names;
  for (const auto& one : std::filesystem::directory_iterator(::testing::TempDir())) {
    const auto name = one.path().filename().string();
    if (name.starts_with("pinfold-scratch-")) names.insert(name);
  }
  return names;
}

TEST_F(cli_local, info_reports_limits_of_io_uring_and_memory) {
  const auto seen = run("info --json");
  const auto ring = row_named(rows_of(seen), "io_uring");
  expect_flat(ring);
  EXPECT_EQ(ring.at("slots"), 16384) << "the largest, not the default";
  EXPECT_EQ(ring.at("largest"), 1 << 30);
  EXPECT_TRUE(row_named(rows_of(seen), "mlock").at("works"));
  const auto host = json::parse(seen.out).at("host");
  for (const char* key : {"memlock", "memlock_exempt", "hugetlb_size", "hugetlb_total", "hugetlb_free", "thp"})
    EXPECT_TRUE(host.contains(key)) << key;
  const auto words = run("info");
  for (const char* word : {"io_uring", "buffers of at most 1 GiB", "hugetlb", "transparent", "pinned"})
    EXPECT_NE(words.out.find(word), std::string::npos) << word << "\n" << words.out;
}

TEST(cli_info, info_reports_the_limit_on_locked_memory) {
  const lowered_limit low(RLIMIT_MEMLOCK, 65536);
  const auto seen = run("info --json");
  rows_of(seen);
  EXPECT_EQ(json::parse(seen.out).at("host").at("memlock"), 65536);
}

// In a user namespace the process has every capability, but not those that the kernel's limit asks for.
TEST(cli_info, the_limit_on_locked_memory_binds_in_a_user_namespace) {
  if (std::system("unshare --user --map-root-user true 2>/dev/null") != 0) GTEST_SKIP() << "no user namespace here";
  const lowered_limit low(RLIMIT_MEMLOCK, 65536);
  const auto seen = run("info --json", "unshare --user --map-root-user");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  EXPECT_EQ(json::parse(seen.out).at("host").at("memlock_exempt"), false);
}

TEST_F(cli_local, registration_cost_is_measured_by_size_and_pages) {
  const auto seen = run("perf register --json --sizes 100,4K,1M --iterations 20 --repeats 1");
  std::map<std::pair<std::size_t, std::string>, json> found;
  for (const auto& row : rows_of(seen)) {
    expect_flat(row);
    expect_latency(row);
    EXPECT_EQ(row.at("case"), "size");
    EXPECT_EQ(row.at("iterations"), 20);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_GT(row.at("unregister_ns"), 0);
    EXPECT_GT(row.at("hit_ns"), 0);
    found[{row.at("size"), row.at("pages")}] = row;
  }
  for (const std::size_t size : {std::size_t{100}, std::size_t{4096}, std::size_t{1} << 20})
    EXPECT_TRUE(found.contains({size, "4k"})) << size;
  const auto whole = json::parse(seen.out);
  for (const char* pages : {"thp", "hugetlb"}) {
    if (found.contains({4096, pages})) continue;
    EXPECT_NE(whole.value("notes", json::array()).dump().find(std::string("no ") + pages + " pages"), std::string::npos)
        << "no rows of " << pages << ", and no reason";
  }
}

TEST_F(cli_local, sizes_that_cannot_be_pinned_are_skipped_with_a_reason) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may pin everything";
  const lowered_limit low(RLIMIT_MEMLOCK, 2 << 20);
  for (const char* what : {"--sizes 4K,16M --pages 4k", "--case batch --sizes 4K --count 2000",
                           "--case pipeline --sizes 16M --chunk 128K"}) {
    std::size_t skipped = 0;
    std::size_t done = 0;
    for (const auto& row :
         rows_of(run(std::string("perf register --json --iterations 5 --repeats 1 ") + what + here))) {
      expect_flat(row);
      EXPECT_EQ(row.at("errors"), 0);
      skipped += row.contains("skipped") ? 1 : 0;
      done += row.contains("ns_per_op") || row.contains("ms") || row.contains("seconds") ? 1 : 0;
    }
    EXPECT_GT(skipped, 0U) << what;
    EXPECT_GT(done, 0U) << what;
  }
}

TEST_F(cli_local, R26_batches_make_few_calls) {
  constexpr std::size_t count = 640;
  std::set<std::tuple<std::string, std::string, int>> kinds;
  for (const auto& row :
       rows_of(run("perf register --json --case batch --count 640 --repeats 1 --delay-ms 1 --sizes 4K"))) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0);
    const auto subject = row.at("subject").get<std::string>();
    const auto method = row.at("method").get<std::string>();
    kinds.insert({subject, method, row.at("workers")});
    if (subject == "views" && method == "batch") {
      EXPECT_EQ(row.at("buffers"), 1265);
      EXPECT_EQ(row.at("registrations"), 51);
      EXPECT_EQ(row.at("calls"), 1);
    }
    if (subject != "buffers") continue;
    EXPECT_EQ(row.at("registrations"), count);
    EXPECT_EQ(row.at("calls"), method == "batch" ? count / 64 : count);
  }
  EXPECT_EQ(kinds.size(), 7U);
}

TEST_F(cli_local, R25_pipelined_writes_transfer_the_right_bytes) {
  std::set<std::string> subjects;
  const auto before = left_behind();
  for (const auto& row :
       rows_of(run("perf register --json --case pipeline --sizes 3M,28K --chunk 64K --repeats 2" + here))) {
    expect_flat(row);
    subjects.insert(row.at("subject"));
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_EQ(row.at("bytes_checked"), 2 * row.at("size").get<std::size_t>());
    EXPECT_GT(row.at("gb_per_s"), 0);
    EXPECT_TRUE(row.at("direct").is_boolean());
  }
  EXPECT_EQ(subjects, (std::set<std::string>{"whole", "pipelined", "warm"}));
  EXPECT_EQ(left_behind(), before) << "a file was left behind";
}

TEST_F(cli_local, file_io_transfers_the_right_bytes_with_all_four_subjects) {
  const auto before = left_behind();
  for (const char* share : {"0", "0.5", "1"}) {
    std::multiset<std::string> subjects;
    for (const auto& row : rows_of(run(std::string("perf io --json --sizes 4K,64K --file-size 2M --depth 4 --buffers 8 "
                                                   "--iterations 25 --repeats 2 --write-share ") +
                                       share + here))) {
      expect_flat(row);
      expect_latency(row);
      subjects.insert(row.at("subject"));
      EXPECT_EQ(row.at("errors"), 0);
      EXPECT_EQ(row.at("iterations"), 100);
      EXPECT_GT(row.at("iops"), 0);
      const bool reads = std::string(share) != "1";
      EXPECT_EQ(row.at("bytes_checked") > 0, reads);
    }
    for (const char* subject : {"unregistered", "per-io", "pinfold", "pool"}) EXPECT_EQ(subjects.count(subject), 2U);
  }
  EXPECT_EQ(left_behind(), before) << "a file was left behind";
}

TEST_F(cli_local, a_file_that_cannot_be_filled_is_named) {
  const auto seen =
      run("perf io --sizes 4K --file-size 1M --iterations 5 --repeats 1" + here, "trap '' XFSZ; ulimit -f 8;");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("cannot fill the file: "), std::string::npos) << seen.complaints;
  EXPECT_NE(seen.complaints.find("--dir "), std::string::npos) << seen.complaints;
}

// The cache evicts when the small table is full, and no byte goes astray.
TEST_F(cli_local, R28_file_io_through_a_small_table_has_no_errors) {
  for (const auto& row : rows_of(run("perf io --json --sizes 4K --file-size 1M --depth 2 --buffers 64 --slots 8 "
                                     "--iterations 200 --repeats 1" +
                                     here)))
    EXPECT_EQ(row.at("errors"), 0) << row;
}

TEST_F(cli_local, text_output_has_labelled_columns) {
  for (const char* what :
       {"perf io --sizes 4K --file-size 1M --iterations 5 --repeats 1",
        "perf register --sizes 4K --iterations 5 --repeats 1", "perf register --case batch --count 64 --repeats 1",
        "perf register --case pipeline --sizes 4K --repeats 1"}) {
    const auto seen = run(what, "TMPDIR='" + ::testing::TempDir() + "'");
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    EXPECT_NE(seen.out.find("#bytes"), std::string::npos) << seen.out;
    EXPECT_NE(seen.out.find("4 KiB"), std::string::npos) << seen.out;
    EXPECT_NE(seen.out.find("limit: "), std::string::npos) << seen.out;
  }
}

TEST_F(cli_local, demo_shows_stale_bytes_and_how_to_prevent_them) {
  const auto seen = run("demo");
  EXPECT_EQ(seen.status, 0) << seen.out << seen.complaints;
  for (const char* word : {"hit inside", "without notice", "OLD", "invalidate", "a stale byte caught", "per-io",
                           "Every byte and every counter is correct."})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

TEST(cli_demo, demo_prints_why_it_skips_local_memory) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may pin everything";
  const lowered_limit low(RLIMIT_MEMLOCK, 65536);
  const auto seen = run("demo");
  EXPECT_EQ(seen.status, 0) << seen.out << seen.complaints;
  EXPECT_NE(seen.out.find("left out: "), std::string::npos) << seen.out;
}

TEST(cli_local_usage, wrong_usage_is_explained_and_exits_with_2) {
  expect_each_refused({{"perf register --case nonsense", "nonsense"},
                       {"perf register --sizes 4K,,1M", "not a size"},
                       {"perf register --sizes 9999T", "memory"},
                       {"perf register --pages 1G", "1G"},
                       {"perf register --slots -1", "--slots"},
                       {"perf register --repeats 0", "--repeats"},
                       {"perf register --case batch --sizes 100", "4 KiB"},
                       {"perf register --case batch --count 0", "--count"},
                       {"perf register --case pipeline --chunk 5000", "4 KiB"},
                       {"perf register --case pipeline --sizes 1M --dir /nonexistent", "/nonexistent"},
                       {"perf io --sizes 100", "4 KiB"},
                       {"perf io --sizes 2G --file-size 64G", "--sizes 2 GiB"},
                       {"perf io --file-size 9999T", "needed"},
                       {"perf io --file-size 32K --sizes 4K", "too small"},
                       {"perf io --depth 16 --buffers 8", "--buffers"},
                       {"perf io --write-share 2", "--write-share"},
                       {"perf io --dir /nonexistent", "/nonexistent"}});
}

TEST(cli_local_usage, help_exits_with_0) {
  for (const char* arguments : {"perf register --help", "perf io --help"}) EXPECT_EQ(run(arguments).status, 0);
}

}  // namespace
}  // namespace pinfold::testing::cli_local_test

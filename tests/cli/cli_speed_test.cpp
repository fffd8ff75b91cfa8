// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf hit|miss|scale|memory|evict|batch`: everything requested is measured and reported. No time is judged.
#include "support/processes/tool_run.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::cli_speed_test {
namespace {

const std::string quick = " --json --repeats 2 --seconds 0.002 ";

using keys = std::vector<const char*>;

void expect_keys(const json& row, const keys& wanted) {
  for (const char* key : wanted) EXPECT_TRUE(row.contains(key)) << key << " in " << row;
}

// Returns the fields that tell rows apart, as one text.
std::string identity_of(const json& row) {
  std::string text = row.at("subject").get<std::string>() + " " + row.at("regions").dump() + " " +
                     row.at("threads").dump() + " " + row.at("pattern").get<std::string>();
  for (const char* key : {"case", "layout", "meanwhile"}) text += row.contains(key) ? " " + row.at(key).dump() : "";
  return text;
}

std::set<std::string> identities_of(const json& rows) {
  std::set<std::string> all;
  for (const auto& row : rows) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0) << row;
    EXPECT_TRUE(all.insert(identity_of(row)).second) << "twice: " << row;
  }
  return all;
}

TEST(cli_speed, help_of_hit_names_every_subject) {
  const auto help = run("perf hit --help").out;
  for (const auto& row : rows_of(run("perf hit --regions 1" + quick)))
    EXPECT_NE(help.find("\n  " + row.at("subject").get<std::string>() + " "), std::string::npos) << row;
  for (const char* peer : {"ucx", "openmpi", "ucx/pinfold", "openmpi/pinfold"})
    EXPECT_NE(help.find(std::string("\n  ") + peer + " "), std::string::npos);
}

TEST(cli_speed, hit_measures_every_subject_on_whole_regions_and_on_parts) {
  const auto rows = rows_of(run("perf hit --regions 1,50" + quick));
  const auto seen = identities_of(rows);
  for (const char* subject :
       {"pinfold", "pinfold-c", "pinfold-3caches", "pinfold-import", "floor-atomics", "floor-record"}) {
    for (const char* rest : {" 1 1 same", " 1 1 interior", " 50 1 random", " 50 1 interior"})
      EXPECT_EQ(seen.count(std::string(subject) + rest), 1U) << subject << rest;
  }
  EXPECT_EQ(seen.size(), 24U);
  for (const auto& row : rows) {
    expect_keys(row, {"ns_per_op", "mops", "windows", "undisturbed"});
    EXPECT_GT(row.at("ns_per_op"), 0);
    EXPECT_GE(row.at("windows"), row.at("undisturbed"));
    EXPECT_EQ(row.contains("ratio"), row.at("subject") != "pinfold");
  }
}

TEST(cli_speed, scale_measures_every_pattern_on_each_number_of_threads) {
  const auto rows = rows_of(run("perf scale --regions 1,50 --threads 1,3" + quick));
  const auto seen = identities_of(rows);
  for (const char* rest : {"1 1 same", "1 3 same", "50 1 same", "50 3 same", "50 1 distinct", "50 3 distinct",
                           "50 1 random", "50 3 random", "1 2 handover", "50 2 handover"})
    EXPECT_EQ(seen.count(std::string("pinfold ") + rest), 1U) << rest;
  EXPECT_EQ(seen.size(), 10U);
  for (const auto& row : rows) {
    if (row.at("pattern") == "handover") expect_keys(row, {"ns_per_op", "ns_acquire", "ns_release"});
    if (row.at("pattern") != "handover") expect_keys(row, {"ns_per_op", "mops", "gain"});
  }
}

TEST(cli_speed, miss_measures_orders_and_slow_drivers) {
  const auto rows =
      rows_of(run("perf miss --json --regions 100 --threads 1,2 --repeats 2 --delay-ms 5 --pause-ms 10 --hits 200"));
  const auto seen = identities_of(rows);
  EXPECT_EQ(seen.size(), 8U);
  for (const char* rest : {"100 1 sequential", "100 2 sequential", "100 1 random", "100 2 random"})
    EXPECT_EQ(seen.count(std::string("pinfold ") + rest), 1U) << rest;
  for (const auto& row : rows) {
    if (!row.contains("case")) {
      expect_keys(row, {"ns_per_op", "gain"});
    } else if (row.at("case") == "parallel-misses") {
      EXPECT_GE(row.at("seconds"), 0.005 * 24 / 4);
    } else {
      expect_keys(row, {"meanwhile", "p50_ns", "p99_ns", "longest_ns"});
      EXPECT_GT(row.at("hits"), 0);
      EXPECT_LE(row.at("hits"), 200) << "fewer where they take more than five seconds";
      EXPECT_EQ(row.at("rounds").get<int>() > 0, row.at("meanwhile") != "nothing") << row;
    }
  }
}

TEST(cli_speed, miss_refills_a_cache_without_hits_and_slow_drivers) {
  const auto rows = rows_of(run("perf miss --json --refill --regions 1,600 --threads 1,2 --repeats 2"));
  EXPECT_EQ(identities_of(rows),
            (std::set<std::string>{"pinfold 1 1 sequential", "pinfold 600 1 sequential", "pinfold 600 2 sequential",
                                   "pinfold 600 1 random", "pinfold 600 2 random"}));
  for (const auto& row : rows) expect_keys(row, {"ns_per_op", "gain"});
}

TEST(cli_speed, batch_measures_ranges_at_once_and_one_by_one) {
  const auto rows = rows_of(run("perf batch --json --regions 500 --threads 1,2 --repeats 2"));
  std::set<std::string> wanted;
  for (const char* which : {"cold", "release", "warm"})
    for (const char* way : {"1 batch", "2 batch", "1 one-by-one"})
      wanted.insert(std::string("pinfold 500 ") + way + " \"" + which + '"');
  EXPECT_EQ(identities_of(rows), wanted);
  for (const auto& row : rows)
    EXPECT_NEAR(row.at("ms").get<double>(), row.at("ns_per_op").get<double>() * 500 * 1e-6, 0.001) << row;
}

// Returns the monitors of the rows of pinfold, or of the notes that say why there are none.
std::multiset<std::string> monitors_in(const outcome& seen) {
  std::multiset<std::string> all;
  for (const auto& row : rows_of(seen)) {
    EXPECT_EQ(row.at("errors"), 0) << row;
    const auto subject = row.at("subject").get<std::string>();
    if (subject.starts_with("pinfold/")) all.insert(subject.substr(subject.find('/') + 1));
    if (subject == "pinfold") all.insert("manual");
  }
  for (const std::string note : json::parse(seen.out).value("notes", json::array())) {
    EXPECT_NE(note.find("is not measured: none ("), std::string::npos) << note;
    all.insert(note.substr(note.find(' ') + 1, note.find(" is") - note.find(' ') - 1));
  }
  return all;
}

TEST(cli_speed, monitors_watch_the_measured_memory) {
  const std::string monitors = " --monitors manual,hooks+userfaultfd,hooks+manual --regions 60 ";
  const std::multiset<std::string> each{"manual", "hooks+userfaultfd", "hooks+manual"};
  EXPECT_EQ(monitors_in(run("perf evict --threads 2" + monitors + quick)), each);
  for (const auto& command : {"hit" + quick, "scale --threads 2" + quick, std::string("miss --json --refill")}) {
    const auto seen = monitors_in(run("perf " + command + monitors));
    for (const auto& one : each) EXPECT_TRUE(seen.contains(one)) << command << ": " << one;
  }
}

TEST(cli_speed, monitors_that_watch_nothing_are_noted) {
  EXPECT_EQ(monitors_in(run("perf hit --regions 1 --monitors none" + quick)), std::multiset<std::string>{"none"});
}

TEST(cli_speed, memory_measures_both_layouts) {
  const auto rows = rows_of(run("perf memory --json --regions 2000 --repeats 2"));
  EXPECT_EQ(identities_of(rows).size(), 4U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("cached"), 2000);
    EXPECT_GT(row.at("bytes_per_region"), 0) << row;
  }
}

TEST(cli_speed, evict_keeps_about_half_of_twice_the_budget) {
  const auto rows = rows_of(run("perf evict --regions 100 --threads 1,2" + quick));
  EXPECT_EQ(identities_of(rows), (std::set<std::string>{"pinfold 100 1 random", "pinfold 100 2 random"}));
  for (const auto& row : rows) {
    EXPECT_GT(row.at("hit_rate"), 0.3) << row;
    EXPECT_LT(row.at("hit_rate"), 0.7) << row;
  }
}

TEST(cli_speed, text_output_has_labelled_columns) {
  const auto seen = run("perf hit --regions 10 --repeats 1 --seconds 0.002");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* word : {"#regions", "ns/op", "x pinfold", "kept", "random", "floor-atomics"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word;
}

TEST(cli_speed, wrong_usage_is_explained_and_exits_with_2) {
  expect_each_refused({{"perf hit --regions 0", "--regions"},
                       {"perf hit --regions 1,x", "--regions"},
                       {"perf hit --regions many", "--regions"},
                       {"perf hit --regions 100000000", "memory"},
                       {"perf hit --threads 2", "--threads"},
                       {"perf scale --threads 0", "--threads"},
                       {"perf miss --seconds 1", "--seconds"},
                       {"perf memory --seconds 1", "--seconds"},
                       {"perf memory --repeats 0", "--repeats"},
                       {"perf memory --monitors manual", "--monitors"},
                       {"perf hit --monitors manual,nonsense", "--monitors nonsense"},
                       {"perf batch --seconds 1", "--seconds"},
                       {"perf hit --peers-dir /", "--peers"},
                       {"perf evict --repeats 0", "--repeats"}});
}

// A folder of programs that stand in for the real peers.
class fake_peers : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void pretend(const char* name, const std::string& script) const {
    const auto path = directory_ + "/pinfold-peer-" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  [[nodiscard]] outcome compare(const std::string& more = "") const {
    return run("perf hit --regions 10 --peers --peers-dir '" + directory_ + "'" + quick + more);
  }

 private:
  std::string directory_ = ::testing::TempDir() + "pinfold_peers_" + std::to_string(getpid());
};

const std::string good_rows =
    R"(echo '[{"subject":"ucx","regions":10,"threads":1,"pattern":"random","ns_per_op":1e9,"errors":0}]')";

TEST_F(fake_peers, peers_get_the_cases_and_their_rows_are_compared) {
  pretend("ucx", R"(case $1 in *'"command":"hit","regions":[10]'*) ;; *) exit 3 ;; esac; )" + good_rows);
  const auto rows = rows_of(compare());
  const auto found = std::ranges::find_if(rows, [](const json& row) { return row.at("subject") == "ucx"; });
  ASSERT_NE(found, rows.end());
  EXPECT_GT(found->at("ratio"), 1);
}

TEST_F(fake_peers, missing_peers_are_named_and_are_no_error) {
  const auto seen = compare();
  EXPECT_EQ(seen.status, 0);
  for (const char* word : {"libucx-dev", "libopenmpi-dev"}) EXPECT_NE(seen.out.find(word), std::string::npos) << word;
}

TEST_F(fake_peers, failed_peers_are_reported_and_do_not_affect_other_peers) {
  for (const char* bad : {"exit 3", "kill -SEGV $$", "echo nonsense", "echo '[1]'"}) {
    pretend("openmpi", bad);
    pretend("ucx", good_rows);
    const auto seen = compare();
    EXPECT_EQ(seen.status, 1) << bad;
    EXPECT_NE(seen.complaints.find("Open MPI"), std::string::npos) << bad << ": " << seen.complaints;
    EXPECT_NE(seen.out.find("\"ucx\""), std::string::npos) << bad;
  }
}

TEST_F(fake_peers, peers_that_hang_are_killed) {
  pretend("ucx", "exec sleep 100");
  const auto seen = compare("--peer-limit 1");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("longer than 1 s"), std::string::npos) << seen.complaints;
}

// Peers that were built lie beside the tool.
TEST(real_peers, peers_measure_the_same_cases_as_pinfold) {
  const auto rows = rows_of(run("perf hit --regions 1,50 --peers" + quick));
  for (const auto& row : rows) {
    const auto subject = row.at("subject").get<std::string>();
    if (subject != "ucx" && subject != "openmpi") continue;
    EXPECT_EQ(row.at("errors"), 0) << row;
    EXPECT_TRUE(row.contains("ratio")) << row;
  }
}

}  // namespace
}  // namespace pinfold::testing::cli_speed_test

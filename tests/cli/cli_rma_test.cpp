// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf rma`: ranks that put and get, on this machine.
#include "support/host/sanitized.hpp"
#include "support/processes/background_run.hpp"
#include "support/processes/tool_run.hpp"

#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <filesystem>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace pinfold::testing::cli_rma_test {
namespace {

using namespace std::chrono_literals;

const std::string quick = " --sizes 100,64K --iterations 40 --buffers 16 --depth 8";

// Returns why the provider is missing here; nothing when it works.
std::string missing(const std::string& provider) {
  if (thread_sanitized) return "a rank has one thread";
  const auto seen = run("perf rma --sizes 64 --iterations 1 --ranks 1 --provider '" + provider + "'");
  return seen.complaints.find("unsupported") == std::string::npos ? "" : seen.complaints;
}

void expect_all_verified(const json& rows, std::size_t ranks) {
  std::set<std::tuple<std::string, std::string, std::size_t>> kinds;
  for (const auto& row : rows) {
    expect_flat(row);
    EXPECT_EQ(row.at("errors"), 0);
    EXPECT_EQ(row.at("iterations"), 40);
    EXPECT_EQ(row.at("transfers"), ranks * (40 + 16)) << "the first round is verified too";
    EXPECT_EQ(row.at("verified"), row.at("transfers"));
    EXPECT_GT(row.at("mb_per_s"), 0);
    EXPECT_GE(row.at("peak_mb_per_s"), row.at("mb_per_s"));
    EXPECT_GT(row.at("transfers_per_s"), 0);
    kinds.emplace(row.at("operation").get<std::string>(), row.at("subject").get<std::string>(),
                  row.at("size").get<std::size_t>());
  }
  EXPECT_EQ(kinds.size(), 12U);
}

// Removes the file that libfabric leaves when a rank is killed.
void remove_shared_memory_of(pid_t killed) {
  ::unlink(("/dev/shm/" + std::to_string(killed) + ":" + std::to_string(::getuid()) + ":0").c_str());
}

class cli_rma : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto why = missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  const std::string provider = std::string(" --provider '") + GetParam() + "'";
};

TEST_P(cli_rma, every_byte_of_every_transfer_is_verified) {
  expect_all_verified(rows_of(run("perf rma --json" + quick + provider)), 2);
  expect_all_verified(rows_of(run("perf rma --json --ranks 3" + quick + provider)), 3);
}

TEST_P(cli_rma, replaced_pages_are_transferred_correctly) {
  expect_all_verified(rows_of(run("perf rma --json --remap" + quick + provider)), 2);
}

TEST_P(cli_rma, two_commands_connect_at_a_port_and_both_print_rows) {
  background_run listening("perf rma --json --listen --port 0" + quick + provider);
  const auto port = listening.said_after("listening on port ");
  ASSERT_NE(port, "");
  expect_all_verified(rows_of(run("perf rma --json localhost --port " + port + quick + provider)), 2);
  const auto other = listening.ended_within(100s);
  ASSERT_TRUE(other);
  expect_all_verified(rows_of(*other), 2);
}

TEST_P(cli_rma, wrong_byte_is_reported_by_the_receiving_rank) {
  const auto seen = run("perf rma --spoil byte --json" + quick + provider);
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(
      seen.complaints.find("rank 1: put of 64 KiB, pool: buffer 0 does not hold what rank 0 sent, from byte 32768"),
      std::string::npos)
      << seen.complaints;
  const auto whole = json::parse(seen.out);
  for (const auto& row : whole.at("rows")) {
    EXPECT_EQ(row.at("errors"), 1);
    EXPECT_EQ(row.at("verified"), row.at("transfers").get<int>() - 1);
  }
}

// shm does not report refused operations.
TEST_P(cli_rma, refused_operation_ends_the_run_with_an_error) {
  for (const char* operation : {"put", "get"}) {
    background_run refused(std::string("perf rma --json --spoil key --timeout 1 --operations ") + operation + quick +
                           provider);
    const auto seen = refused.ended_within(100s);
    ASSERT_TRUE(seen) << "it hangs";
    EXPECT_EQ(seen->status, 1);
    EXPECT_EQ(seen->out, "");
    const std::string word = std::string(GetParam()) == "shm" ? "timed_out: no " : "driver_error: a transfer failed: ";
    EXPECT_NE(seen->complaints.find(word), std::string::npos) << seen->complaints;
  }
}

TEST_P(cli_rma, a_rank_that_is_killed_or_stopped_ends_the_others) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    background_run running("perf rma --json --sizes 64K --iterations 100000000 --timeout 1" + provider);
    const auto ranks = running.children();
    ASSERT_EQ(ranks.size(), 1U);
    std::this_thread::sleep_for(300ms);
    ::kill(ranks.front(), signal);
    const auto seen = running.ended_within(100s);
    ASSERT_TRUE(seen) << "it hangs: signal " << signal;
    EXPECT_EQ(seen->status, 1);
    EXPECT_NE(seen->complaints.find("rank 0: "), std::string::npos) << seen->complaints;
    EXPECT_EQ(seen->out, "");
    for (int tries = 0; tries < 200 && ::kill(ranks.front(), 0) == 0; ++tries) std::this_thread::sleep_for(10ms);
    EXPECT_NE(::kill(ranks.front(), 0), 0) << "a rank is left";
    remove_shared_memory_of(ranks.front());
  }
}

std::string name_of(const ::testing::TestParamInfo<const char*>& which) {
  const std::string name = which.param;
  return name.substr(0, name.find(';'));
}
INSTANTIATE_TEST_SUITE_P(over, cli_rma, ::testing::Values("tcp;ofi_rxm", "shm"), name_of);

class cli_rma_tcp : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = missing("tcp;ofi_rxm"); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(cli_rma_tcp, text_output_has_the_columns_of_perftest_and_the_verified_transfers) {
  const auto seen = run("perf rma" + quick);
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  for (const char* word : {"#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]",
                           "verified 1344 of 1344", "2 ranks on 1 host"})
    EXPECT_NE(seen.out.find(word), std::string::npos) << word << "\n" << seen.out;
}

// Returns a stranger's connection to a port of this host.
int connected_to(const std::string& port) {
  const int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
  return stranger;
}

TEST_F(cli_rma_tcp, connection_with_another_protocol_is_refused) {
  background_run listening("perf rma --json --listen --port 0" + quick);
  const auto port = listening.said_after("listening on port ");
  ASSERT_NE(port, "");
  for (const std::string words : {"GET / HTTP/1.1\r\n\r\n", "\1\0\0\0\377\377\377\377", ""}) {
    const int stranger = connected_to(port);
    EXPECT_EQ(::send(stranger, words.data(), words.size(), 0), static_cast<ssize_t>(words.size()));
    ::close(stranger);
  }
  expect_all_verified(rows_of(run("perf rma --json 127.0.0.1 --port " + port + quick)), 2);
  const auto seen = listening.ended_within(100s);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->status, 0);
  EXPECT_NE(seen->complaints.find("refused a connection"), std::string::npos);
}

TEST_F(cli_rma_tcp, a_rank_without_a_descriptor_reports_it) {
  background_run listening("perf rma --listen --port 0" + quick);
  const auto port = listening.said_after("listening on port ");
  ASSERT_NE(port, "");
  const rlimit none{3, 3};
  ASSERT_EQ(::prlimit(listening.pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const int came = connected_to(port);
  const auto seen = listening.ended_within(100s);
  ::close(came);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->status, 1);
  EXPECT_NE(seen->complaints.find("out_of_resources"), std::string::npos) << seen->complaints;
}

TEST_F(cli_rma_tcp, ranks_with_different_options_are_refused) {
  background_run listening("perf rma --listen --port 0 --sizes 4K");
  const auto port = listening.said_after("listening on port ");
  const auto seen = run("perf rma localhost --sizes 8K --port " + port);
  EXPECT_EQ(seen.status, 2);
  EXPECT_NE(seen.complaints.find("same options"), std::string::npos) << seen.complaints;
  const auto other = listening.ended_within(100s);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->status, 2);
  EXPECT_NE(other->complaints.find("--sizes 8192"), std::string::npos) << other->complaints;
}

TEST_F(cli_rma_tcp, missing_provider_or_peer_is_reported_with_the_native_code) {
  const std::array<std::tuple<const char*, int, const char*>, 5> wrong{
      {{"--provider nonsense", 1, "fi_getinfo: No data available (fi_errno 61)"},
       {"localhost --port 1 --timeout 0.3", 1, "Connection refused"},
       {"nowhere.invalid", 1, "nowhere.invalid"},
       {"--listen --port 0 --wait 0.2", 1, "did not connect"},
       {"--address 203.0.113.9", 2, "127.0.0.1 (lo)"}}};
  for (const auto& [arguments, status, word] : wrong) {
    const auto seen = run(std::string("perf rma ") + arguments);
    EXPECT_EQ(seen.status, status) << arguments;
    EXPECT_NE(seen.complaints.find(word), std::string::npos) << arguments << ": " << seen.complaints;
    EXPECT_EQ(seen.out, "") << arguments;
  }
}

TEST_F(cli_rma_tcp, wrong_usage_is_explained_and_exits_with_2) {
  const std::array<std::pair<const char*, const char*>, 12> wrong{{{"--sizes 4", "8 bytes"},
                                                                   {"--sizes 4K,,1M", "not a size"},
                                                                   {"--sizes 9999T", "memory"},
                                                                   {"--depth 64", "--buffers"},
                                                                   {"--buffers 0", "--buffers"},
                                                                   {"--iterations 0", "--iterations"},
                                                                   {"--operations peek", "peek"},
                                                                   {"--subjects cache", "cache"},
                                                                   {"--ranks 0", "--ranks"},
                                                                   {"--port 65536", "--port"},
                                                                   {"--listen somewhere", "exclude"},
                                                                   {"--timeout 0", "--timeout"}}};
  for (const auto& [arguments, word] : wrong) expect_refused(std::string("perf rma ") + arguments, word);
}

TEST_F(cli_rma_tcp, help_exits_with_0) {
  EXPECT_EQ(run("perf rma --help").status, 0);
  EXPECT_NE(run("perf --help").out.find("rma"), std::string::npos);
}

TEST(cli_rma_alone, tool_without_modules_names_the_missing_one) {
  const auto alone = std::filesystem::path(::testing::TempDir()) / ("pinfold_alone_" + std::to_string(getpid()));
  std::filesystem::create_directories(alone);
  std::filesystem::copy_file(tool(), alone / "pinfold");
  for (const auto& [arguments, word] : {std::pair("", "libfabric"), std::pair(" --mpi", "MPI")}) {
    const auto complaints = (alone / "said").string();
    const auto command = (alone / "pinfold").string() + " perf rma" + arguments + " 2>" + complaints;
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
    EXPECT_NE(contents_of(complaints).find("unsupported: built without " + std::string(word)), std::string::npos);
  }
  std::filesystem::remove_all(alone);
}

}  // namespace
}  // namespace pinfold::testing::cli_rma_test

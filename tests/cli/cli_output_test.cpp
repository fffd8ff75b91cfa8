// SPDX-License-Identifier: BSD-3-Clause
// The tool's output: a failed write is an error, and written output is not lost.
#include "support/fixtures/page_folder.hpp"
#include "support/processes/background_run.hpp"
#include "support/processes/tool_run.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::cli_output_test {
namespace {

using namespace std::chrono_literals;

// Subcommands that the build may lack say so, and exit with 1 as well.
constexpr std::array subcommands{"info",
                                 "info --json",
                                 "info --config",
                                 "demo",
                                 "--help",
                                 "--version",
                                 "perf import --sizes 4K --iterations 10 --repeats 1",
                                 "perf import --json --sizes 4K --iterations 10 --repeats 1",
                                 "perf register --sizes 64K --iterations 10 --repeats 1",
                                 "perf io --help",
                                 "perf startup --help",
                                 "perf startup --size 1G --time-limit 0.1",
                                 "perf monitor --help",
                                 "perf hit --regions 10 --seconds 0.01 --repeats 1",
                                 "perf miss --help",
                                 "replay --help",
                                 "trace --help",
                                 "monitord --help"};

TEST(cli_output, a_full_disk_is_an_error_of_every_subcommand) {
  for (const char* arguments : subcommands) {
    const auto seen = run(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(seen.status, 1) << arguments;
    EXPECT_NE(seen.complaints, "") << arguments;
  }
}

TEST(cli_output, what_is_no_regular_file_is_written_and_stays_what_it_is) {
  const page_folder folder;
  const auto target = folder.path() + "/target", link = folder.path() + "/link", fifo = folder.path() + "/fifo";
  ASSERT_EQ(::symlink("target", link.c_str()), 0);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(folder.path() + "/trace") << "# pinfold trace 1\ncache 1.1 a\n1.1 0 0x10000 4096 0x10000 4096 900\n";
  for (const auto& output : {std::string("metrics --output "), "report " + folder.path() + "/trace -o "}) {
    std::ofstream(target) << "old";
    static_cast<void>(run(output + link));
    EXPECT_TRUE(std::filesystem::is_symlink(link)) << output;
    EXPECT_NE(contents_of(target), "old") << output;
    const auto seen = run((output + fifo).append(" & cat ").append(fifo));
    EXPECT_FALSE(seen.out.empty()) << output;
    EXPECT_TRUE(std::filesystem::is_fifo(fifo)) << output;
    static_cast<void>(run(output + "/dev/null"));
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  }
}

TEST(cli_output, link_of_another_user_is_not_followed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const page_folder folder;
  const auto target = folder.path() + "/target", link = folder.path() + "/link";
  std::ofstream(target) << "old";
  ASSERT_EQ(::symlink("target", link.c_str()), 0);
  ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
  const auto seen = run("metrics --output " + link);
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("a link of user 65534"), std::string::npos) << seen.complaints;
  EXPECT_EQ(contents_of(target), "old");
}

TEST(cli_output, pipe_without_a_reader_is_not_waited_for_where_signals_wait) {
  const page_folder folder;
  const auto fifo = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto seen = run("metrics --interval 1s --output " + fifo, "timeout --signal=KILL 100");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find(fifo), std::string::npos) << seen.complaints;
}

TEST(cli_output, a_closed_output_is_an_error) {
  const auto seen = run("info --config >&-");
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints, "");
}

// A pipe or a file is not a terminal: without flushing, a heading of a hundred bytes would come at the end, or never.
TEST(cli_output, output_is_flushed_at_once_and_kept_after_an_interrupt) {
  background_run running("perf import --sizes 4K --seconds 3600 --repeats 1");
  std::string seen;
  for (int tries = 0; tries < 3000 && seen.find("host:") == std::string::npos; ++tries) {
    std::this_thread::sleep_for(20ms);
    seen = running.output();
  }
  EXPECT_NE(seen.find("host:"), std::string::npos) << seen;
  ::kill(running.pid(), SIGINT);
  const auto ended = running.ended_within(100s);
  if (!ended) FAIL() << "hangs after SIGINT";
  EXPECT_EQ(ended->out.substr(0, seen.size()), seen);
}

// As the tables print them.
TEST(cli_output, printed_sizes_are_accepted_as_arguments) {
  for (const char* size : {"4KiB", "'4 KiB'", "4KB", "4K", "4096"}) {
    const auto rows = rows_of(run(std::string("perf import --json --iterations 5 --repeats 1 --sizes ") + size));
    for (const auto& row : rows) EXPECT_EQ(row.at("size"), 4096) << size;
  }
}

}  // namespace
}  // namespace pinfold::testing::cli_output_test

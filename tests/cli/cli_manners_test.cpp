// SPDX-License-Identifier: BSD-3-Clause
// What all commands of the tool have in common. The tool itself lists them, so a new command is covered at once.
#include "support/host/sanitized.hpp"
#include "support/processes/session.hpp"
#include "support/processes/tool_commands.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

namespace pinfold::testing::cli_manners_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto longest_end = 60s;  // a machine under load; the tool itself limits an end to 1 s

std::uint64_t seed() {
  const char* given = std::getenv("PINFOLD_TEST_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device()();
}

// A folder of the test, which is the tool's $TMPDIR.
class cli_manners : public ::testing::Test {
 protected:
  cli_manners() { fs::create_directories(folder_); }
  ~cli_manners() override { fs::remove_all(folder_); }

  std::string settings() const { return "TMPDIR=" + folder_.string(); }

  // Returns the names of files that the tool left: in the folder, and of its processes in shared memory.
  std::string files_left(pid_t pid) const {
    std::string left;
    for (const auto& one : fs::directory_iterator(folder_))
      if (one.path().filename() != "trace") left += one.path().string() + " ";
    std::error_code none;
    for (const auto& one : fs::directory_iterator("/dev/shm", none))
      if (one.path().filename().string().starts_with(std::to_string(pid) + ":")) left += one.path().string() + " ";
    return left;
  }

  const fs::path folder_ = fs::canonical(::testing::TempDir()) / ("pinfold_manners_" + std::to_string(getpid()));
};

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST_F(cli_manners, all_commands_are_found) {
  const auto all = all_commands(false);
  for (const char* one : {"info", "demo", "run", "trace", "replay", "monitord", "perf hit"})
    EXPECT_NE(std::ranges::find(all, one), all.end()) << one;
  EXPECT_EQ(all_commands(true), std::vector<std::string>{"perf"});
}

TEST_F(cli_manners, help_is_narrow_and_the_same_in_both_ways) {
  auto all = all_commands(false);
  for (const auto& group : all_commands(true)) all.push_back(group);
  all.emplace_back("");
  for (const auto& command : all) {
    const auto seen = run(command + " --help");
    EXPECT_EQ(seen.status, 0) << command;
    EXPECT_EQ(seen.complaints, "") << command;
    EXPECT_LE(widest_line(seen.out), 80U) << command;
    EXPECT_NE(seen.out.find("Usage: pinfold" + (command.empty() ? "" : " " + command)), std::string::npos) << command;
    EXPECT_EQ(run("help " + command).out, seen.out) << command;
  }
}

TEST_F(cli_manners, bash_completes_commands_and_options) {
  const auto script = folder_ / "completes";
  std::ofstream(script) << ". '" PINFOLD_CONTRIB "/bash/pinfold'; COMP_WORDS=('" << tool()
                        << "' \"$@\"); COMP_CWORD=$#; _pinfold; echo \"${COMPREPLY[*]}\"\n";
  const auto pages = folder_ / "pages";
  fs::create_directory(pages);
  std::ofstream(pages / "4711.12345.4026531836.0") << "a page";
  std::ofstream(pages / "4$(touch${IFS}ran).1.2.3") << "no page";  // in a folder that another user has made
  for (const auto& [words, expected] : {std::pair("re", "replay report\n"),
                                        {"perf hi", "hit\n"},
                                        {"help to", "top\n"},
                                        {"report --b", "--budget\n"},
                                        {"perf hit --rep", "--repeats\n"},
                                        {"report a", "\n"},
                                        {"top 4", "4711\n"},
                                        {"watch --json 4", "4711\n"},
                                        {"watch --limit 4", "\n"},
                                        {"dump 4", "4711\n"},
                                        {"replay 4", "\n"},
                                        {"run --for ucx -- --he", "\n"}}) {
    FILE* const bash =
        popen(("PINFOLD_STATS_DIR='" + pages.string() + "' bash '" + script.string() + "' " + words).c_str(), "r");
    ASSERT_NE(bash, nullptr);
    std::array<char, 256> line{};
    EXPECT_NE(std::fgets(line.data(), line.size(), bash), nullptr);
    EXPECT_EQ(pclose(bash), 0);
    EXPECT_STREQ(line.data(), expected) << words;
  }
  EXPECT_FALSE(fs::exists("ran"));
}

TEST_F(cli_manners, info_is_narrow) {
  const auto seen = run("info");
  EXPECT_LE(widest_line(seen.out), 80U) << seen.out;
}

TEST_F(cli_manners, groups_name_their_subcommands) {
  for (const auto& group : all_commands(true)) {
    const auto seen = run(group);
    EXPECT_EQ(seen.status, 2) << group;
    for (const auto& one : subcommands_of(group + " "))
      EXPECT_NE(seen.complaints.find(one.substr(group.size() + 1)), std::string::npos) << one;
  }
}

TEST_F(cli_manners, unknown_options_are_refused_with_the_nearest_one) {
  for (const auto& command : all_commands(false)) {
    const auto seen = run(command + " --halp");
    EXPECT_EQ(seen.status, 2) << command;
    EXPECT_EQ(seen.out, "") << command;
    EXPECT_EQ(seen.complaints, "pinfold " + command +
                                   ": unknown option '--halp'; did you mean '--help'?\nRun 'pinfold " + command +
                                   " --help' for its options.\n");
  }
}

TEST_F(cli_manners, unknown_commands_are_refused_with_the_nearest_one) {
  for (const auto& name : all_commands(false)) {
    const auto command = name + "x";
    const auto seen = run(command);
    EXPECT_EQ(seen.status, 2) << command;
    EXPECT_EQ(seen.out, "") << command;
    EXPECT_NE(seen.complaints.find("did you mean '" + name.substr(name.rfind(' ') + 1) + "'?"), std::string::npos)
        << command << ": " << seen.complaints;
  }
}

// Commands that would run until a signal ends them end at the first failed write, too.
int status_with(const std::string& arguments, const std::string& settings) {
  session running(attached::pipe, arguments, settings);
  auto status = running.ended_within(60s);
  for (int tries = 0; !status && tries < 2; ++tries) {
    ::kill(running.pid(), tries == 0 ? SIGTERM : SIGKILL);
    status = running.ended_within(longest_end);
  }
  EXPECT_TRUE(status && (!WIFSIGNALED(*status) || WTERMSIG(*status) != SIGKILL)) << arguments << " hangs";
  EXPECT_NE(running.output(), "") << arguments << " fails without a word";
  return status.value_or(0);
}

void expect_failed_writes(const std::string& redirection, const std::string& folder, const std::string& settings) {
  for (const auto& command : all_commands(false)) {
    if (command == "run" || command == "trace") continue;  // the output is the program's
    EXPECT_NE(status_with(short_work(command, folder) + redirection, settings), 0) << command;
  }
}

TEST_F(cli_manners, a_full_disk_is_an_error) { expect_failed_writes(" >/dev/full", folder_.string(), settings()); }
TEST_F(cli_manners, a_closed_output_is_an_error) { expect_failed_writes(" >&-", folder_.string(), settings()); }

struct interruption {
  attached to;
  int signal;
  std::chrono::milliseconds after;
};

// Returns nothing when the run does not end.
std::optional<int> interrupted(const std::string& arguments, const std::string& settings, const interruption& how,
                               std::string& left, pid_t& pid) {
  session running(how.to, arguments, settings);
  static_cast<void>(running.says("\x01 never", how.after));
  if (how.to == attached::terminal)
    running.type_interrupt();
  else
    ::kill(running.pid(), how.signal);
  const auto status = running.ended_within(longest_end);
  pid = running.pid();
  left = running.left_after(longest_end);
  return status;
}

void interrupt_all(const std::string& folder, const std::string& settings, attached to,
                   const std::function<std::string(pid_t)>& files_left) {
  const auto used = seed();
  std::mt19937_64 random(used);
  constexpr std::array signals{SIGINT, SIGTERM, SIGHUP};
  for (const auto& command : all_commands(false)) {
    const auto signal = to == attached::terminal ? SIGINT : signals[random() % signals.size()];
    const interruption how{to, signal, std::chrono::milliseconds(random() % 300)};
    SCOPED_TRACE("pinfold " + command + ", signal " + std::to_string(signal) + " after " +
                 std::to_string(how.after.count()) + " ms, PINFOLD_TEST_SEED=" + std::to_string(used));
    std::string left;
    pid_t pid = 0;
    const auto status = interrupted(long_work(command, folder), settings, how, left, pid);
    ASSERT_TRUE(status) << "hangs";
    const bool by_signal = WIFSIGNALED(*status) && WTERMSIG(*status) == signal;
    const bool ended_before = WIFEXITED(*status) && WEXITSTATUS(*status) <= 2;  // faster than the signal, or refused
    const bool as_its_program = command == "trace" && WIFEXITED(*status) && WEXITSTATUS(*status) == 128 + signal;
    EXPECT_TRUE(by_signal || ended_before || as_its_program) << "status " << *status;
    EXPECT_EQ(left, "") << "processes are left";
    EXPECT_EQ(files_left(pid), "") << "files are left";
  }
}

TEST_F(cli_manners, ctrl_c_ends_every_command_without_leftovers) {
  interrupt_all(folder_.string(), settings(), attached::terminal, [this](pid_t pid) { return files_left(pid); });
}

TEST_F(cli_manners, signals_end_every_command_without_leftovers) {
  interrupt_all(folder_.string(), settings(), attached::pipe, [this](pid_t pid) { return files_left(pid); });
}

// The progress shows that rows are complete. It is on the terminal only, before the results.
TEST_F(cli_manners, interrupted_measurement_prints_its_complete_rows) {
  session running(attached::terminal, "perf hit --json --regions 1 --seconds 1.1s --repeats 1");
  ASSERT_TRUE(running.says("rows measured", 60s)) << running.output();
  running.type_interrupt();
  const auto status = running.ended_within(longest_end);
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGINT) << *status;
  const auto& text = running.output();
  const auto parsed = json::parse(text.substr(std::min(text.find("{\r\n"), text.size())), nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << text;
  EXPECT_GE(parsed.at("rows").size(), 1U);
  EXPECT_LT(parsed.at("rows").size(), 12U);
  EXPECT_EQ(parsed.at("notes").at(0), "interrupted: these rows were complete");
}

// A reader that never reads, such as a stopped pager: the tool is stuck in its final output.
TEST_F(cli_manners, interrupt_ends_a_tool_whose_reader_is_stuck) {
  if (thread_sanitized) GTEST_SKIP() << "its runtime delivers no signal to a thread that is stuck in a write";
  for (const char* work : {"perf hit --regions 1 --seconds 1ms --repeats 1", "perf hit --regions 1 --seconds 60"}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    const std::string much(4096, 'x');
    while (::write(ends[1], much.data(), much.size()) > 0) {
    }
    ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
    session running(attached::pipe,
                    std::string(work) + " >/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(ends[1]));
    static_cast<void>(running.says("\x01 never", 700ms));
    ::kill(running.pid(), SIGINT);
    const auto status = running.ended_within(longest_end);
    ASSERT_TRUE(status) << work;
    EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGINT) << work << ": " << *status;
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST_F(cli_manners, a_reader_that_leaves_ends_the_tool_quietly) {
  const auto seen = run("info --config | head -n 1");
  EXPECT_EQ(seen.complaints, "");
  EXPECT_EQ(std::ranges::count(seen.out, '\n'), 1);
}

}  // namespace
}  // namespace pinfold::testing::cli_manners_test

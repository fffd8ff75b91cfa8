// SPDX-License-Identifier: BSD-3-Clause
// `pinfold top` on a terminal: what a user sees, and what is left of it.
#include "support/fixtures/published_cache.hpp"
#include "support/processes/session.hpp"
#include "support/processes/tmux_terminal.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::cli_top_terminal_test {
namespace {

class cli_top_terminal : public with_pages {
 protected:
  void SetUp() override {
    if (!tmux_terminal::is_installed()) GTEST_SKIP() << "needs tmux (package tmux)";
    for (const auto& [name, entries] : {std::pair("first cache", 7), {"second cache", 2}}) {
      children_.push_back(
          std::make_unique<child_process>([&](line& talk) { return with_published_cache(talk, name, entries); }));
      ASSERT_TRUE(children_.back()->talk().receive<bool>());
    }
    static_cast<void>(top_until("", [](const json& all) {
      std::size_t bytes = 0;
      for (const auto& one : all.at("processes")) bytes += one.at("bytes").get<std::size_t>();
      return bytes == 9 * 0x1000;
    }));
    terminal_ = std::make_unique<tmux_terminal>(80, 24);
    terminal_->enter("stty -g > " + (folder_ / "before").string());
    ASSERT_TRUE(terminal_->shows("before"));
    if (start() == no_curses) GTEST_SKIP() << "a build without ncurses";
  }

  std::string start() {
    terminal_->enter("clear; PINFOLD_STATS_DIR=" + folder_.string() + " '" + tool() + "' top --sort bytes");
    const auto seen = terminal_->shows_one_of({"q quit", no_curses});
    EXPECT_NE(seen, "") << terminal_->screen();
    return seen;
  }

  // The shell has its terminal again, with the modes from before.
  void expect_restored() {
    const auto number = std::to_string(++restored_);
    // The quotes tell what the command prints from what the terminal echoes of it.
    terminal_->enter("clear; stty -g > " + (folder_ / "after").string() + "; echo 'again'" + number);
    ASSERT_TRUE(terminal_->shows("again" + number + "\n$")) << terminal_->screen();
    EXPECT_EQ(contents_of((folder_ / "before").string()), contents_of((folder_ / "after").string()));
    EXPECT_NE(contents_of((folder_ / "before").string()), "");
  }

  void quit() {
    terminal_->type("q");
    ASSERT_TRUE(terminal_->hides("q quit")) << terminal_->screen();
    expect_restored();
  }

  static constexpr const char* no_curses = "ncurses was missing";
  std::vector<std::unique_ptr<child_process>> children_;
  std::unique_ptr<tmux_terminal> terminal_;
  int restored_ = 0;
};

std::string line_with(const std::string& screen, const std::string& text) {
  std::istringstream lines(screen);
  for (std::string one; std::getline(lines, one);)
    if (one.find(text) != std::string::npos) return one;
  return {};
}

TEST_F(cli_top_terminal, table_fits_80_columns_and_q_restores_the_terminal) {
  const std::string headline = "2 processes, 2 caches; by bytes";
  ASSERT_TRUE(terminal_->shows(headline)) << terminal_->screen();  // none of them is late, and said to be stopped
  const auto seen = terminal_->screen();
  EXPECT_TRUE(seen.starts_with(headline)) << seen;
  EXPECT_NE(seen.find("OPEN99"), std::string::npos) << seen;
  EXPECT_TRUE(line_with(seen, "first cache").starts_with("> ")) << seen;
  EXPECT_NE(line_with(seen, "first cache").find(" 28K "), std::string::npos) << seen;
  EXPECT_TRUE(line_with(seen, "second cache").starts_with("  ")) << seen;
  EXPECT_EQ(std::ranges::count(seen, '\n'), 24);
  quit();
}

TEST_F(cli_top_terminal, enter_shows_all_about_a_cache_and_escape_goes_back) {
  terminal_->type("Down");
  ASSERT_TRUE(terminal_->shows(">  second cache")) << terminal_->screen();
  terminal_->type("Enter");
  ASSERT_TRUE(terminal_->shows("misses_cold")) << terminal_->screen();
  EXPECT_NE(terminal_->screen().find("\"second cache\", pretend"), std::string::npos) << terminal_->screen();
  std::string all;
  const auto missing = [&]() -> std::string {
    for (const char* one : {"by size of registration", "slowest driver calls", "0x110000 4 KiB", "opens: 2", " #"})
      if (all.find(one) == std::string::npos) return one;
    if (all.find("ptrace") != std::string::npos) return {};  // the tool may not read the process, and says so
    for (const char* one : {"largest entries", "oldest entries", "most reused entries", "110000-111000"})
      if (all.find(one) == std::string::npos) return one;
    return {};
  };
  // A busy machine may draw a page after the test has looked.
  for (const int pause : {200, 1000, 4000}) {
    for (int page = 0; page < 6; ++page) {
      all += terminal_->screen();
      terminal_->type("NPage");
      std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    }
    if (missing().empty()) break;
    terminal_->type("Home");
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
  }
  EXPECT_EQ(missing(), "") << all;
  terminal_->type("Escape");
  EXPECT_TRUE(terminal_->shows(">  second cache")) << terminal_->screen();
  quit();
}

TEST_F(cli_top_terminal, slash_filters_and_s_changes_the_order) {
  terminal_->type("/");
  ASSERT_TRUE(terminal_->shows(" filter: _"));
  terminal_->type("s e c o n");
  ASSERT_TRUE(terminal_->shows(" filter: secon_"));
  EXPECT_TRUE(terminal_->hides("first cache")) << terminal_->screen();
  terminal_->type("Enter");
  ASSERT_TRUE(terminal_->shows("; /secon")) << terminal_->screen();
  terminal_->type("Escape");
  EXPECT_TRUE(terminal_->shows("first cache")) << terminal_->screen();
  terminal_->type("s");
  EXPECT_TRUE(terminal_->shows("by entries")) << terminal_->screen();
}

TEST_F(cli_top_terminal, uses_more_columns_when_there_are_more) {
  terminal_->resize(170, 40);
  ASSERT_TRUE(terminal_->hides("\n           COLD")) << terminal_->screen();
  const auto seen = terminal_->screen();
  EXPECT_NE(line_with(seen, "REQ/S").find("OPEN99"), std::string::npos) << seen;
  terminal_->resize(80, 24);
  EXPECT_TRUE(terminal_->shows("\n           COLD")) << terminal_->screen();
  terminal_->resize(20, 3);
  terminal_->resize(80, 24);
  EXPECT_TRUE(terminal_->shows("second cache")) << terminal_->screen();
}

// Two changes that the tool sees as one leave its size as it was, and its screen damaged.
TEST_F(cli_top_terminal, is_drawn_anew_after_a_change_to_the_same_size) {
  const auto pid = terminal_->program();
  std::ofstream("/proc/" + std::to_string(pid) + "/fd/1") << "\033[H\033[2Jdamaged" << std::flush;
  ASSERT_TRUE(terminal_->shows("damaged")) << terminal_->screen();
  ::kill(pid, SIGWINCH);
  EXPECT_TRUE(terminal_->shows("second cache")) << terminal_->screen();
  EXPECT_TRUE(terminal_->hides("damaged")) << terminal_->screen();
}

TEST_F(cli_top_terminal, stops_and_goes_on) {
  terminal_->type("C-z");
  ASSERT_TRUE(terminal_->shows("Stopped")) << terminal_->screen();
  expect_restored();
  terminal_->enter("fg");
  ASSERT_TRUE(terminal_->shows("q quit")) << terminal_->screen();
  EXPECT_TRUE(terminal_->shows("first cache"));
  quit();
}

TEST_F(cli_top_terminal, signals_restore_the_terminal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const auto pid = terminal_->program();
    ASSERT_GT(pid, 0);
    ::kill(pid, signal);
    ASSERT_TRUE(terminal_->hides("q quit")) << terminal_->screen();
    expect_restored();
    ASSERT_EQ(start(), "q quit");
  }
}

TEST_F(cli_top_terminal, a_cache_that_is_gone_is_said_to_be) {
  terminal_->type("Enter");
  ASSERT_TRUE(terminal_->shows("misses_cold")) << terminal_->screen();
  children_[0]->kill();
  EXPECT_TRUE(terminal_->shows("(ended)")) << terminal_->screen();
  const auto page = observation::find_page(folder_.string(), children_[0]->pid());
  ASSERT_TRUE(page);
  std::filesystem::remove(*page);
  EXPECT_TRUE(terminal_->shows("is gone")) << terminal_->screen();
  terminal_->type("Escape");
  EXPECT_TRUE(terminal_->shows(">  second cache")) << terminal_->screen();
}

TEST_F(cli_top_terminal, a_terminal_that_cannot_move_its_cursor_is_refused) {
  session running(attached::terminal, "top", "TERM=dumb");
  EXPECT_TRUE(running.says("a terminal of the type TERM=dumb; --once prints one table", std::chrono::seconds(60)))
      << running.output();
}

// The test does not read what the tool draws: 400 pages are more than a terminal takes.
TEST_F(cli_top_terminal, a_signal_ends_it_though_its_output_is_stuck) {
  auto parts = read_parts(observation::find_page(folder_.string(), children_[0]->pid()).value());
  for (int i = 1; i <= 400; ++i) {
    parts.header.pid = 5000000 + i;  // above the kernel's limit
    write_parts(parts, std::to_string(parts.header.pid) + ".1.1.0");
  }
  const session running(attached::terminal, "top --interval 0.1", "TERM=xterm LINES=500 COLUMNS=300");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  siginfo_t seen{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(running.pid()), &seen, WEXITED | WNOWAIT | WNOHANG), 0);
  ASSERT_EQ(seen.si_pid, 0) << "ended by itself";
  ::kill(running.pid(), SIGTERM);
  for (int tries = 0; tries < 3000 && seen.si_pid == 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(running.pid()), &seen, WEXITED | WNOWAIT | WNOHANG), 0);
  }
  EXPECT_EQ(seen.si_code, CLD_KILLED);
  EXPECT_EQ(seen.si_status, SIGTERM);
}

}  // namespace
}  // namespace pinfold::testing::cli_top_terminal_test

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A terminal with a shell, by tmux(1), which shows what a user would see.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

/// A tmux server of its own, with one window. Ends with the test.
class tmux_terminal {
 public:
  [[nodiscard]] static bool is_installed() { return std::system("tmux -V >/dev/null 2>&1") == 0; }

  tmux_terminal(int columns, int lines)
      : socket_("pinfold_" + std::to_string(getpid()) + "_" + std::to_string(++made)) {
    tell("-f /dev/null new-session -d -x " + std::to_string(columns) + " -y " + std::to_string(lines) +
         " \"exec env PS1='$ ' sh\"");  // `program` takes the pane's process for the shell that runs it
    // In another window: ends the server if the test was killed.
    tell("new-window -d \"while kill -0 " + std::to_string(getpid()) + "; do sleep 1; done; tmux -L " + socket_ +
         " kill-server\"");
    EXPECT_TRUE(shows("$\n")) << screen();
  }
  tmux_terminal(const tmux_terminal&) = delete;
  tmux_terminal& operator=(const tmux_terminal&) = delete;
  ~tmux_terminal() { tell("kill-server"); }

  /// Types keys, with the names that tmux has for them, such as `Down Enter`.
  void type(const std::string& keys) { tell("send-keys " + keys); }

  /// Types a command line.
  void enter(const std::string& command) {
    tell("send-keys -l \"" + command + "\"");
    type("Enter");
  }

  void resize(int columns, int lines) {
    tell("resize-window -x " + std::to_string(columns) + " -y " + std::to_string(lines));
  }

  /// Returns the program that the shell runs; 0 if there is none.
  [[nodiscard]] pid_t program() const {
    const auto shell = std::to_string(std::atoi(asked("display-message -p '#{pane_pid}'").c_str()));
    pid_t found = 0;
    std::ifstream("/proc/" + shell + "/task/" + shell + "/children") >> found;
    return found;
  }

  /// Returns the lines that are seen.
  [[nodiscard]] std::string screen() const { return asked("capture-pane -p"); }

  /// Waits a minute at most until `text` is seen, or not seen any more. Returns whether it is so.
  [[nodiscard]] bool shows(const std::string& text) const { return !shows_one_of({text}).empty(); }
  [[nodiscard]] bool hides(const std::string& text) const {
    return becomes([&](const std::string& seen) { return seen.find(text) == std::string::npos; });
  }
  /// Returns the first of the texts that is seen; an empty string if none is.
  [[nodiscard]] std::string shows_one_of(const std::vector<std::string>& texts) const {
    std::string found;
    static_cast<void>(becomes([&](const std::string& seen) {
      for (const auto& one : texts)
        if (found.empty() && seen.find(one) != std::string::npos) found = one;
      return !found.empty();
    }));
    return found;
  }

 private:
  // Not one name for all: the next server's first client may reach the one that ends.
  static inline int made = 0;

  template <class Condition>
  [[nodiscard]] bool becomes(Condition true_of) const {
    for (int tries = 0; tries < 3000; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(20)))
      if (true_of(screen())) return true;
    return false;
  }

  [[nodiscard]] std::string asked(const std::string& words) const {
    std::string text;
    // With this shell also for a user whose own is nologin(8).
    FILE* const pipe = popen(("env -u TMUX SHELL=/bin/sh tmux -L " + socket_ + " " + words + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return text;
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      text.append(buffer.data(), got);
    pclose(pipe);
    return text;
  }
  void tell(const std::string& words) const { static_cast<void>(asked(words)); }

  std::string socket_;
};

}  // namespace pinfold::testing

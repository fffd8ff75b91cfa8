// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A run of the tool in a session of its own, at a terminal or with pipes, and the processes of that session.
#pragma once

#include "support/processes/tool_run.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utmp.h>

namespace pinfold::testing {

/// Whether the tool's input, output and errors are a terminal, or its output and errors a pipe.
enum class attached { terminal, pipe };

/// A background run of the tool. The test ends it at the latest.
class session {
 public:
  /// `settings` are assignments of environment variables, as in a shell.
  session(attached to, const std::string& arguments, const std::string& settings = "") : to_(to) {
    int theirs = -1;
    if (to == attached::terminal) {
      if (::openpty(&ours_, &theirs, nullptr, nullptr, nullptr) != 0) return;
    } else {
      int ends[2];
      if (::pipe(ends) != 0) return;
      ours_ = ends[0], theirs = ends[1];
    }
    const auto command = "exec env " + settings + " '" + tool() + "' " + arguments;
    pid_ = ::fork();
    if (pid_ == 0) become(theirs, command.c_str());
    if (to == attached::terminal) wait_for_terminal();
    ::close(theirs);
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() {
    if (pid_ > 0) ::kill(-pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(ours_);
  }

  /// Returns the process, which is the leader of the session.
  [[nodiscard]] pid_t pid() const noexcept { return leader_ > 0 ? leader_ : pid_; }

  /// Types Ctrl-C.
  void type_interrupt() const {
    const char key = 3;
    EXPECT_EQ(::write(ours_, &key, 1), 1);
  }

  /// Reads until the output contains `words`, or for that time. Returns whether it does.
  bool says(const std::string& words, std::chrono::milliseconds within) {
    const auto deadline = std::chrono::steady_clock::now() + within;
    while (output_.find(words) == std::string::npos && std::chrono::steady_clock::now() < deadline) read_some();
    return output_.find(words) != std::string::npos;
  }

  /// Returns the status as of wait(2); nothing when the tool has not ended within that time. Reads its output
  /// meanwhile.
  std::optional<int> ended_within(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      read_some();
    }
    leader_ = std::exchange(pid_, -1);
    for (int quiet = 0; quiet < 2; quiet += read_some() ? 0 : 1) {
    }
    return status;
  }

  [[nodiscard]] const std::string& output() const noexcept { return output_; }

  /// Returns the command lines of the session's processes that are still there after that time.
  [[nodiscard]] std::string left_after(std::chrono::milliseconds time) const {
    const auto deadline = std::chrono::steady_clock::now() + time;
    auto left = members();
    while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      left = members();
    }
    return left;
  }

 private:
  [[noreturn]] void become(int theirs, const char* command) const {
    if (to_ == attached::terminal) {
      ::login_tty(theirs);
    } else {
      ::setsid();
      ::dup2(theirs, STDOUT_FILENO);
      ::dup2(theirs, STDERR_FILENO);
    }
    ::execl("/bin/sh", "sh", "-c", command, nullptr);
    ::_exit(127);
  }

  // A Ctrl-C typed before the child has the terminal would reach no process.
  void wait_for_terminal() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (::tcgetpgrp(ours_) != pid_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // Returns whether there was something to read. A terminal without programs cannot be read any more.
  bool read_some() {
    pollfd readable{ours_, POLLIN, 0};
    if (::poll(&readable, 1, 5) <= 0 || (readable.revents & POLLIN) == 0) return false;
    char buffer[4096];
    const auto got = ::read(ours_, buffer, sizeof buffer);
    if (got > 0) output_.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }

  // The processes of /proc whose session is that of the tool, and that have not ended.
  [[nodiscard]] std::string members() const {
    std::string found;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      const auto text = contents_of((entry.path() / "stat").string());
      const auto name = text.rfind(')');
      if (name == std::string::npos) continue;
      std::istringstream fields(text.substr(name + 1));
      std::string state;
      pid_t parent = 0, group = 0, of_session = 0;
      fields >> state >> parent >> group >> of_session;
      if (of_session == pid() && state != "Z" && state != "X") found += text.substr(0, name + 1) + " ";
    }
    return found;
  }

  attached to_;
  int ours_ = -1;
  pid_t pid_ = -1;
  pid_t leader_ = -1;
  std::string output_;
};

}  // namespace pinfold::testing

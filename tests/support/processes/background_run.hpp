// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A run of the tool beside the test, which may talk to it or kill it.
#pragma once

#include "support/processes/tool_run.hpp"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <spawn.h>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

/// A background run of the tool. Ends with the test at the latest.
class background_run {
 public:
  explicit background_run(const std::string& arguments) : files_(::testing::TempDir() + "pinfold_background_") {
    files_ += std::to_string(getpid()) + "_" + std::to_string(made_++);
    std::string command = "exec '" + tool() + "' " + arguments + " >'" + files_ + "' 2>'" + files_ + ".err'";
    std::string shell = "/bin/sh";
    std::string option = "-c";
    std::vector<char*> words{shell.data(), option.data(), command.data(), nullptr};
    if (::posix_spawn(&pid_, shell.c_str(), nullptr, nullptr, words.data(), environ) != 0) pid_ = -1;
  }
  background_run(const background_run&) = delete;
  background_run& operator=(const background_run&) = delete;
  ~background_run() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    std::remove(files_.c_str());
    std::remove((files_ + ".err").c_str());
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// Returns what the tool has printed on standard output so far.
  [[nodiscard]] std::string output() const { return contents_of(files_); }

  /// Returns how the tool ended; nothing when it has not ended within that time.
  std::optional<outcome> ended_within(std::chrono::seconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = -1;
    return outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(files_), contents_of(files_ + ".err")};
  }

 private:
  static inline int made_ = 0;
  std::string files_;
  pid_t pid_ = -1;
};

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// `pinfold metrics --listen` as a child of the test.
#pragma once

#include "support/processes/tool_run.hpp"

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace pinfold::testing {

/// Starts it, and waits for the line that says where it serves.
class metrics_server {
 public:
  /// Throws `std::runtime_error` when it ends instead.
  explicit metrics_server(const std::string& address) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
    const auto program = tool();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::execl(program.c_str(), "pinfold", "metrics", "--listen", address.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    char one = 0;
    while (::read(ends[0], &one, 1) == 1 && one != '\n') line_ += one;
    ::close(ends[0]);
    if (!line_.starts_with("serving: curl ")) throw std::runtime_error("the tool does not serve: " + line_);
  }
  metrics_server(const metrics_server&) = delete;
  metrics_server& operator=(const metrics_server&) = delete;
  ~metrics_server() { static_cast<void>(end()); }

  [[nodiscard]] std::uint16_t port() const {
    const std::string before = "http://127.0.0.1:";
    return static_cast<std::uint16_t>(std::stoul(line_.substr(line_.find(before) + before.size())));
  }

  /// Ends it with SIGTERM. Returns its exit status, or minus a signal.
  int end() noexcept {
    if (pid_ <= 0) return 0;
    ::kill(pid_, SIGTERM);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = -1;
  std::string line_;
};

/// Returns whether this build's tool can serve.
inline bool tool_serves() { return run("metrics --help").out.find("--listen") != std::string::npos; }

}  // namespace pinfold::testing

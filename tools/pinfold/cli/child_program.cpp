// SPDX-License-Identifier: BSD-3-Clause
#include "cli/child_program.hpp"

#include "cli/failure.hpp"
#include "cli/interrupted_output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

using clock = std::chrono::steady_clock;

// Closes the descriptor.
struct descriptor {
  explicit descriptor(int opened) noexcept : number(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(number); }
  int number;
};

// Reads until the other side closes; returns nothing if that takes too long.
std::optional<std::string> everything_from(int descriptor, clock::time_point end) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now()).count();
    pollfd readable{descriptor, POLLIN, 0};
    const int ready = ::poll(&readable, 1, static_cast<int>(std::clamp<long>(left, 0, 60'000)));
    if (ready == 0 && left <= 0) return std::nullopt;
    if (ready <= 0) continue;
    const auto got = ::read(descriptor, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// Starts the program with its standard output in `output`, and our standard error.
pid_t start_program(std::string path, std::vector<std::string> given, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  std::vector<char*> arguments{path.data()};
  for (auto& one : given) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw failure(fmt::format("cannot be run: {}", std::generic_category().message(error)));
  return child;
}

}  // namespace

finished_program run_program(std::string path, std::vector<std::string> arguments, std::chrono::seconds limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw failure("cannot be run: cannot create a pipe");
  const descriptor reading(ends[0]);
  pid_t child = 0;
  {
    const descriptor writing(ends[1]);
    child = start_program(std::move(path), std::move(arguments), writing.number);
  }
  kill_at_interrupt(child);
  const auto output = everything_from(reading.number, clock::now() + limit);
  if (!output) ::kill(child, SIGKILL);
  finished_program seen;
  while (::waitpid(child, &seen.status, 0) < 0 && errno == EINTR) {
  }
  kill_at_interrupt(0);
  if (!output) throw failure(fmt::format("was killed because it took longer than {} s", limit.count()));
  seen.output = *output;
  return seen;
}

void end_with_parent() noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t theirs{};
  ::sigemptyset(&theirs);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&theirs, one);
  ::pthread_sigmask(SIG_BLOCK, &theirs, nullptr);
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("exited with {}", WEXITSTATUS(status));
}

std::filesystem::path tool_path() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown);
}

}  // namespace tool

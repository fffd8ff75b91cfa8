// SPDX-License-Identifier: BSD-3-Clause
#include "speed_peers.hpp"

#include "failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

// Closes it.
struct descriptor {
  explicit descriptor(int opened) noexcept : number(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(number); }
  int number;
};

// The package on Debian without which it is not built.
struct peer {
  const char* name;
  const char* program;
  const char* package;
};
constexpr std::array<peer, 2> peers{{
    {"UCX", "pinfold-peer-ucx", "libucx-dev"},
    {"Open MPI", "pinfold-peer-openmpi", "libopenmpi-dev"},
}};

std::vector<fs::path> places(const std::string& directory) {
  if (!directory.empty()) return {directory};
  std::error_code unknown;
  const auto own = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  return {own, own.parent_path() / "libexec" / "pinfold"};
}

std::optional<std::string> found(const peer& wanted, const std::string& directory) {
  for (const auto& place : places(directory)) {
    const auto path = place / wanted.program;
    if (::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return std::nullopt;
}

// What a program says and how it ends, as wait(2) tells.
struct finished {
  std::string output;
  int status = 0;
};

// Until the other side ends; nothing if that takes too long.
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

// Its standard output goes into `output`; its standard error is ours.
pid_t start_program(std::string path, std::string argument, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  const std::array<char*, 3> arguments{path.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw failure(fmt::format("cannot be run: {}", std::generic_category().message(error)));
  return child;
}

finished run_program(const std::string& path, const std::string& argument, std::chrono::seconds limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw failure("cannot be run: there is no pipe");
  const descriptor reading(ends[0]);
  pid_t child = 0;
  {
    const descriptor writing(ends[1]);
    child = start_program(path, argument, writing.number);
  }
  const auto output = everything_from(reading.number, clock::now() + limit);
  if (!output) ::kill(child, SIGKILL);
  finished seen;
  while (::waitpid(child, &seen.status, 0) < 0 && errno == EINTR) {
  }
  if (!output) throw failure(fmt::format("was ended, as it took longer than {} s", limit.count()));
  seen.output = *output;
  return seen;
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("exited with {}", WEXITSTATUS(status));
}

json rows_of(const std::string& path, const bench::parameters& how, std::chrono::seconds limit) {
  const auto seen = run_program(path, bench::as_json(how).dump(), limit);
  if (seen.status != 0) throw failure(ending(seen.status));
  auto rows = json::parse(seen.output, nullptr, false);
  if (!rows.is_array()) throw failure("printed something other than rows");
  for (const auto& row : rows) {
    if (!row.is_object() || !row.contains("subject")) throw failure("printed something other than rows");
  }
  return rows;
}

}  // namespace

peer_results measure_peers(const bench::parameters& how, const std::string& directory, std::chrono::seconds limit) {
  peer_results results;
  for (const auto& one : peers) {
    const auto path = found(one, directory);
    if (!path) {
      results.notes.push_back(fmt::format("{} is not compared: there is no {}, which is built where {} is installed",
                                          one.name, one.program, one.package));
      continue;
    }
    try {
      for (auto& row : rows_of(*path, how, limit)) results.rows.push_back(std::move(row));
    } catch (const std::exception& problem) {
      results.failures.push_back(fmt::format("{}: {} {}", one.name, *path, problem.what()));
    }
  }
  return results;
}

}  // namespace tool

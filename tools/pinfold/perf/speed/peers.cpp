// SPDX-License-Identifier: BSD-3-Clause
#include "perf/speed/peers.hpp"

#include "cli/child_program.hpp"
#include "cli/failure.hpp"

#include "bench/rows.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

namespace fs = std::filesystem;

// A peer, and the Debian package that its build needs.
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

json rows_of(const std::string& path, const bench::parameters& how, std::chrono::seconds limit) {
  const auto seen = run_program(path, {bench::as_json(how).dump()}, limit);
  if (seen.status != 0) throw failure(ending_of(seen.status));
  auto rows = json::parse(seen.output, nullptr, false);
  if (!rows.is_array()) throw failure("printed malformed output");
  for (const auto& row : rows) {
    if (!row.is_object() || !row.contains("subject")) throw failure("printed malformed output");
  }
  return rows;
}

}  // namespace

int peer_results::conclude(int status) const {
  for (const auto& problem : failures) fmt::print(stderr, "pinfold: {}\n", problem);
  return failures.empty() ? status : 1;
}

void peer_comparison::add_to(CLI::App& command) {
  auto* wanted = command.add_flag("--peers", wanted_, "compare with the caches of UCX and Open MPI, if built");
  command.add_option("--peers-dir", directory_, "directory of their programs [that of this program]")
      ->check(CLI::ExistingDirectory)
      ->needs(wanted);
  command.add_number("--peer-limit", limit_s_, "seconds after which such a program is killed", 1, 86'400)
      ->needs(wanted);
}

peer_results peer_comparison::measure(const bench::parameters& how) const {
  peer_results results;
  if (!wanted_) return results;
  for (const auto& one : peers) {
    const auto path = found(one, directory_);
    if (!path) {
      results.notes.push_back(fmt::format("{} is not compared: {} is missing, which is built if {} is installed",
                                          one.name, one.program, one.package));
      continue;
    }
    try {
      bench::append(results.rows, rows_of(*path, how, std::chrono::seconds(limit_s_)));
    } catch (const std::exception& problem) {
      results.failures.push_back(fmt::format("{}: {} {}", one.name, *path, problem.what()));
    }
  }
  return results;
}

}  // namespace tool

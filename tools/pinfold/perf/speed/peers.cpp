// SPDX-License-Identifier: BSD-3-Clause
#include "perf/speed/peers.hpp"

#include "cli/child_program.hpp"
#include "cli/failure.hpp"
#include "perf/perf.hpp"

#include "bench/rows.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

namespace fs = std::filesystem;

// A peer, the Debian package that its build needs, and the client of `pinfold run` whose adapter takes its place.
struct peer {
  const char* name;
  const char* program;
  const char* package;
  const char* client;
};
constexpr std::array<peer, 2> peers{{
    {"UCX", "pinfold-peer-ucx", "libucx-dev", "ucx"},
    {"Open MPI", "pinfold-peer-openmpi", "libopenmpi-dev", "openmpi"},
}};

std::vector<fs::path> places(const std::string& directory) {
  if (!directory.empty()) return {directory};
  const auto own = tool_path().parent_path();
  return {own, own.parent_path() / "libexec" / "pinfold"};
}

std::optional<std::string> found(const peer& wanted, const std::string& directory) {
  for (const auto& place : places(directory)) {
    const auto path = place / wanted.program;
    if (::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return std::nullopt;
}

json rows_of(std::string path, std::vector<std::string> arguments, std::chrono::seconds limit) {
  const auto seen = run_program(std::move(path), std::move(arguments), limit);
  if (seen.status != 0) throw failure(ending_of(seen.status));
  auto rows = json::parse(seen.output, nullptr, false);
  if (!rows.is_array()) throw failure("printed malformed output");
  for (const auto& row : rows) {
    if (!row.is_object() || !row.contains("subject")) throw failure("printed malformed output");
  }
  return rows;
}

// The same program, calling the same functions, with pinfold behind them. The regions are addresses without memory,
// which no monitor but `manual` can watch.
json rows_over_pinfold(const peer& one, const std::string& path, const bench::parameters& how,
                       std::chrono::seconds limit) {
  auto rows = rows_of("/usr/bin/env",
                      {"PINFOLD_MONITOR=manual", "OMPI_MCA_rcache_pinfold_monitor=manual", tool_path().string(), "run",
                       "--for", one.client, "--", path, bench::as_json(how).dump()},
                      limit);
  for (auto& row : rows) row["subject"] = row.at("subject").get<std::string>() + "/pinfold";
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
  command
      .add_flag("--adapters", adapters_, "run the peers' programs also with pinfold's adapters in place of the caches")
      ->needs(wanted);
  command.add_number("--peer-limit", limit_s_, "seconds after which such a program is killed", 1, 86'400)
      ->duration(std::chrono::seconds(1))
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
      const std::chrono::seconds limit(limit_s_);
      const auto add = [&](const json& rows) {
        bench::append(results.rows, rows);
        for (const auto& row : rows) keep_row(row);
      };
      add(rows_of(*path, {bench::as_json(how).dump()}, limit));
      if (adapters_) add(rows_over_pinfold(one, *path, how, limit));
    } catch (const std::exception& problem) {
      results.failures.push_back(fmt::format("{}: {} {}", one.name, *path, problem.what()));
    }
  }
  return results;
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf hit|miss|scale|memory|evict`: the cost of the cache itself, over a registrar that does nothing.
#include "cli/failure.hpp"
#include "commands.hpp"
#include "info/host.hpp"
#include "perf/perf.hpp"
#include "perf/speed/columns.hpp"
#include "perf/speed/peers.hpp"
#include "perf/speed/speed.hpp"

#include "bench/parameters.hpp"
#include "bench/rows.hpp"

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <utility>

namespace tool {
namespace {

struct speed_command {
  bench::parameters how;
  bool with_peers = false;
  std::string peers_directory;
  unsigned peer_limit = 1800;
  bool as_json = false;
};

struct speed_kind {
  const char* name;
  const char* help;
  std::vector<std::size_t> regions;
  std::vector<unsigned> threads;  // empty: always one thread
  std::vector<column> (*columns)();
};

std::vector<speed_kind> kinds() {
  return {{"hit", "Cost of a get and a put of a cached region", {1, 1000, 100'000}, {}, hit_columns},
          {"miss", "Cost of caching a region, also during slow driver calls", {1000, 100'000}, {1, 2}, miss_columns},
          {"scale", "How hits scale with threads", {1, 1000, 100'000}, {1, 2}, scale_columns},
          {"memory", "Bytes of memory for each cached region", {1'000'000}, {}, memory_columns},
          {"evict", "Random use of twice the memory that the budget allows", {1000, 100'000}, {1, 2}, evict_columns}};
}

// Adds each row's figure over that of pinfold's own row of the same kind.
void add_ratios(json& rows) {
  for (auto& row : rows) {
    for (const auto& own : rows) {
      if (own.at("subject") != "pinfold" || row.at("subject") == "pinfold" || !bench::same_but("subject", row, own))
        continue;
      for (const char* key : {"ns_per_op", "bytes_per_region", "seconds", "p99_ns"}) {
        if (row.contains(key) && own.contains(key) && own.at(key) != 0)
          row["ratio"] = rounded(row.at(key).get<double>() / own.at(key).get<double>());
      }
    }
  }
}

// Sorts by size and case first, then by subject, so that competing subjects stand below each other.
json side_by_side(const json& rows) {
  auto sorted = json::array();
  std::vector<bool> taken(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t k = i; k < rows.size(); ++k) {
      if (taken[k] || !bench::same_but("subject", rows[i], rows[k])) continue;
      taken[k] = true;
      sorted.push_back(rows[k]);
    }
  }
  return sorted;
}

void check_memory_for(const bench::parameters& how, const json& host) {
  constexpr std::size_t most_bytes = 1024;  // a region's requests, and its entry in the most expensive subject
  const auto most = host.at("memory").get<std::size_t>() / 2 / most_bytes;
  for (const auto regions : how.regions) {
    if (regions > most) throw usage_failure(fmt::format("--regions {}: too many for this machine's memory", regions));
  }
}

int measure(const speed_command& command, const speed_kind& kind) {
  const auto host = host_facts();
  check_memory_for(command.how, host);
  auto rows = measure_pinfold(command.how);
  peer_results peers;
  if (command.with_peers)
    peers = measure_peers(command.how, command.peers_directory, std::chrono::seconds(command.peer_limit));
  for (auto& row : peers.rows) rows.push_back(std::move(row));
  rows = side_by_side(rows);
  add_ratios(rows);
  if (!command.as_json) fmt::print("pinfold perf {}\nhost:  {}\n\n", kind.name, host_line(host));
  const int status = show_results(host, rows, kind.columns(), command.as_json, peers.notes);
  for (const auto& problem : peers.failures) fmt::print(stderr, "pinfold: {}\n", problem);
  return peers.failures.empty() ? status : 1;
}

void add_length(CLI::App& command, bench::parameters& how, std::string_view kind) {
  command.add_option("--time-limit", how.time_limit, "seconds after which the filling of a cache is abandoned")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  command.add_option("--repeats", how.repeats, "number of measurements; the median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  if (kind == "miss" || kind == "memory") return;
  command.add_option("--seconds", how.seconds, "seconds of each measurement, multiplied by the threads on a CPU")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
}

void add_slow(CLI::App& command, bench::parameters& how) {
  command.add_option("--delay-ms", how.delay_ms, "duration of concurrent registrations")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option("--pause-ms", how.pause_ms, "duration of the calls during which hits are timed")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command.add_option("--hits", how.hits, "number of hits timed during slow calls")
      ->check(CLI::Range(std::size_t{100}, std::size_t{100'000'000}))
      ->capture_default_str();
}

void add_what(CLI::App& command, speed_command& into, const speed_kind& kind) {
  command.add_option("--regions", into.how.regions, "number of 64 KiB regions that are cached, e.g. 1,1000,100000")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{100'000'000}))
      ->capture_default_str();
  if (!kind.threads.empty()) {
    command.add_option("--threads", into.how.threads, "threads, e.g. 1,2")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
  }
  auto* peers = command.add_flag("--peers", into.with_peers, "compare with the caches of UCX and Open MPI, if built");
  command.add_option("--peers-dir", into.peers_directory, "directory of their programs [that of this program]")
      ->check(CLI::ExistingDirectory)
      ->needs(peers);
  command.add_option("--peer-limit", into.peer_limit, "seconds after which such a program is killed")
      ->needs(peers)
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  command.add_flag("--json", into.as_json, "print one JSON object");
}

}  // namespace

void add_perf_speed(CLI::App& perf, action& chosen) {
  for (const auto& kind : kinds()) {
    auto command = std::make_shared<speed_command>();
    command->how.command = kind.name;
    command->how.regions = kind.regions;
    command->how.threads = kind.threads.empty() ? std::vector<unsigned>{1} : kind.threads;
    if (command->how.command == "memory") command->how.repeats = 3;  // a million regions take seconds, and vary little
    auto* own = perf.add_subcommand(kind.name, kind.help);
    add_what(*own, *command, kind);
    add_length(*own, command->how, kind.name);
    if (command->how.command == "miss") add_slow(*own, command->how);
    own->callback([command, kind, &chosen] { chosen = [command, kind] { return measure(*command, kind); }; });
  }
}

}  // namespace tool

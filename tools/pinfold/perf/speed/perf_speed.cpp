// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf hit|miss|scale|memory|evict|batch`: the cost of the cache itself, over a registrar that does nothing.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "cli/settings.hpp"
#include "commands.hpp"
#include "info/host.hpp"
#include "perf/perf.hpp"
#include "perf/speed/peers.hpp"
#include "perf/speed/speed.hpp"

#include "bench/parameters.hpp"
#include "bench/rows.hpp"
#include "bench/subject.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {
namespace {

struct speed_command {
  bench::parameters how;
  std::vector<std::string> monitors{"manual"};
  peer_comparison comparison{1800};
  bool as_json = false;
};

using columns = std::vector<column>;

columns named(columns more) {
  columns all{count("#regions", "regions"), words("pattern", "pattern"), words("subject", "subject")};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Shows how many windows remained after removing those in which a thread was off its CPU.
column kept() {
  return {"kept", [](const json& row) {
            if (!row.contains("windows")) return std::string("-");
            const auto all = row.at("windows").get<double>();
            return fmt::format("{:.0f}%", all == 0 ? 0 : 100 * row.at("undisturbed").get<double>() / all);
          }};
}

columns ended(columns all) {
  all.push_back(number("x pinfold", "ratio", 1, 2));
  all.push_back(kept());
  return with_errors(std::move(all));
}

columns hit_columns() { return ended(named({number("ns/op", "ns_per_op", 1, 1)})); }

columns scale_columns() {
  return ended(
      named({count("threads", "threads"), number("ns/op", "ns_per_op", 1, 1), number("acquire[ns]", "ns_acquire", 1, 1),
             number("release[ns]", "ns_release", 1, 1), number("slowest[ns]", "ns_slowest", 1, 1),
             number("Mop/s", "mops", 1, 1), number("x 1 thread", "gain", 1, 2)}));
}

columns miss_columns() {
  return ended(named({count("threads", "threads"), words("meanwhile", "meanwhile"), number("ns/op", "ns_per_op", 1, 1),
                      number("x 1 thread", "gain", 1, 2), number("total[s]", "seconds", 1, 3),
                      microseconds("p50[us]", "p50_ns", 3), microseconds("p99[us]", "p99_ns", 3),
                      microseconds("longest[us]", "longest_ns", 1)}));
}

columns memory_columns() {
  return with_errors(named({words("layout", "layout"), count("#cached", "cached"),
                            number("bytes/region", "bytes_per_region", 1, 1), number("x pinfold", "ratio", 1, 2)}));
}

columns evict_columns() {
  return ended(named({count("threads", "threads"), number("ns/op", "ns_per_op", 1, 1), number("Mop/s", "mops", 1, 1),
                      number("x 1 thread", "gain", 1, 2), number("hit rate", "hit_rate", 1, 3)}));
}

columns batch_columns() {
  return with_errors(named({count("threads", "threads"), words("case", "case"), number("ns/range", "ns_per_op", 1, 1),
                            number("total[ms]", "ms", 1, 2), number("x pinfold", "ratio", 1, 2)}));
}

struct speed_kind {
  const char* name;
  const char* help;
  std::vector<std::size_t> regions;
  std::vector<unsigned> threads;  // empty: always one thread
  columns (*shown)();
};

std::vector<speed_kind> kinds() {
  return {{"hit", "Cost of a get and a put of a cached region", {1, 1000, 100'000}, {}, hit_columns},
          {"miss", "Cost of caching a region, also during slow driver calls", {1000, 100'000}, {1, 2}, miss_columns},
          {"scale", "How hits scale with threads", {1, 1000, 100'000}, {1, 2}, scale_columns},
          {"memory", "Bytes of memory for each cached region", {1'000'000}, {}, memory_columns},
          {"evict", "Random use of twice the memory that the budget allows", {1000, 100'000}, {1, 2}, evict_columns},
          {"batch", "Cost of many 4 KiB ranges at once, by one call and by many", {120'000}, {1, 4}, batch_columns}};
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

void complete(json& rows) {
  rows = side_by_side(rows);
  add_ratios(rows);
}

void check_memory_for(const bench::parameters& how, const json& host) {
  constexpr std::size_t most_bytes = 1024;  // a region's requests, and its entry in the most expensive subject
  const auto most = host.at("memory").get<std::size_t>() / 2 / most_bytes;
  for (const auto regions : how.regions) {
    if (regions > most) throw usage_failure(fmt::format("--regions {}: too many for this machine's memory", regions));
  }
}

// Measures pinfold with each of the monitors, and notes which of them cannot be measured.
json measure_each(const speed_command& command, std::vector<std::string>& notes) {
  auto how = command.how;
  row_count progress;
  auto rows = json::array();
  for (const auto& monitors : command.monitors) {
    how.monitors = monitors;
    how.row_done = [&](json row) {
      progress.step();
      if (how.watched()) row["subject"] = row.at("subject").get<std::string>() + "/" + how.monitors;
      keep_row(std::move(row));
    };
    try {
      bench::append(rows, measure_pinfold(how));
    } catch (const bench::cannot_be_measured& why) {
      notes.push_back(fmt::format("--monitors {} is not measured: {}", monitors, why.what()));
    }
  }
  return rows;
}

int measure(const speed_command& command, const speed_kind& kind) {
  check_environment();
  const auto host = host_facts();
  check_memory_for(command.how, host);
  for (const auto& monitors : command.monitors) static_cast<void>(monitors_named(monitors));
  show_at_interrupt(
      {.host = host,
       .as_json = command.as_json,
       .heading =
           [&](const json&) { return fmt::format("pinfold perf {}\nhost:  {}\n\n", kind.name, host_line(host)); },
       .columns = kind.shown(),
       .complete = complete});
  std::vector<std::string> notes;
  auto rows = measure_each(command, notes);
  auto peers = command.comparison.measure(command.how);
  bench::append(rows, peers.rows);
  std::ranges::move(peers.notes, std::back_inserter(notes));
  return peers.conclude(show_results(rows, notes));
}

constexpr auto subjects_of_hit = R"(Subjects, over stand-ins for a driver, which register nothing:
  pinfold          the C++ interface, its hit compiled into the caller
  pinfold-c        the C interface
  pinfold-3caches  three caches that live at the same time, used in turn
  pinfold-import   the cache of imported memory, which compares handles of 64 bytes
  ucx              with --peers: UCX's cache, ucs_rcache
  openmpi          with --peers: Open MPI's cache, grdma
  ucx/pinfold      with --adapters: the calls of ucx, answered by pinfold's adapter
  openmpi/pinfold  with --adapters: the calls of openmpi, answered by pinfold's adapter
With --monitors, the first three also by names like pinfold/hooks+userfaultfd, over mapped memory.
Stand-ins for a cache, which show how fast a hit could be:
  floor-atomics    a comparison of a range and two atomic additions
  floor-record     a load from the region's record, and a store to it
)";

void add_length(CLI::App& command, bench::parameters& how, std::string_view kind) {
  command.add_seconds("--time-limit", how.time_limit, "seconds after which the filling of a cache is abandoned", 0.1,
                      86'400.0);
  command.add_number("--repeats", how.repeats, "number of measurements; the median is shown", 1, 1000);
  if (kind == "miss" || kind == "memory" || kind == "batch") return;
  command.add_seconds("--seconds", how.seconds, "seconds of each measurement, multiplied by the threads on a CPU",
                      0.001, 3600.0);
}

void add_misses(CLI::App& command, bench::parameters& how) {
  command.add_flag("--refill", how.refill, "misses in a cache that had all regions before; no slow calls");
  command.add_number("--delay-ms", how.delay_ms, "duration of concurrent registrations", 0, 1000)
      ->duration(std::chrono::milliseconds(1));
  command.add_number("--pause-ms", how.pause_ms, "duration of the calls during which hits are timed", 1, 10'000)
      ->duration(std::chrono::milliseconds(1));
  command.add_number("--hits", how.hits, "number of hits timed during slow calls", std::size_t{100},
                     std::size_t{100'000'000});
}

void add_what(CLI::App& command, speed_command& into, const speed_kind& kind) {
  command
      .add_option("--regions", into.how.regions,
                  fmt::format("number of {} KiB regions that are cached, e.g. 1,1000,100000",
                              into.how.command == "batch" ? 4 : 64))
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{100'000'000}))
      ->capture_default_str();
  if (!kind.threads.empty()) {
    command.add_option("--threads", into.how.threads, "threads, e.g. 1,2")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
  }
  if (into.how.command != "memory") {
    command.add_option("--monitors", into.monitors, "monitors of pinfold's caches, e.g. manual,hooks+userfaultfd")
        ->delimiter(',')
        ->capture_default_str();
  }
  into.comparison.add_to(command);
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
    if (command->how.command == "hit") own->footer(subjects_of_hit);
    if (command->how.command == "miss") add_misses(*own, command->how);
    own->callback([command, kind, &chosen] { chosen = [command, kind] { return measure(*command, kind); }; });
  }
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf monitor`: the cost to a program of monitors that watch its memory.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "cli/settings.hpp"
#include "commands.hpp"
#include "info/host.hpp"
#include "perf/monitor/monitor_subjects.hpp"
#include "perf/perf.hpp"
#include "perf/speed/peers.hpp"

#include "bench/monitor.hpp"
#include "bench/parameters.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

namespace tool {
namespace {

using choice = pinfold::monitor_choice;
using by_manual = monitored_subject<choice::manual>;
using by_hooks = monitored_subject<hooks_alone>;
using by_userfaultfd = monitored_subject<choice::userfaultfd>;
using by_both = monitored_subject<choice::hooks | choice::userfaultfd>;
using by_bpf = monitored_subject<choice::bpf>;
using by_strict = monitored_subject<choice::userfaultfd, true>;

struct monitor_command {
  bench::parameters how{.command = "monitor", .regions = {100'000}, .threads = {1}, .repeats = 5, .time_limit = 20};
  std::string which = "all";
  peer_comparison comparison{300};
  bool as_json = false;
};

struct monitor_case {
  const char* name;
  const char* title;
  std::vector<column> (*columns)();
};

std::vector<column> unrelated_columns() {
  return {words("subject", "subject"),           count("#cached", "regions"),
          number("pair[ns]", "ns_per_op", 1, 1), number("past libc[ns]", "ns_without", 1, 1),
          number("extra[ns]", "ns_extra", 1, 1), number("x hooks", "ratio", 1, 1)};
}

std::vector<column> big_columns() {
  return {words("subject", "subject"),
          count("#cached", "regions"),
          microseconds("munmap[us]", "ns_per_op", 1),
          microseconds("no cache[us]", "ns_without", 1),
          microseconds("extra[us]", "ns_extra", 1),
          microseconds("next acquire[us]", "next_ns", 1),
          microseconds("longest after[us]", "longest_ns", 1),
          number("drained[ms]", "drain_ns", 1e-6, 1),
          count("left", "left"),
          number("x hooks", "ratio", 1, 1)};
}

std::vector<column> cached_columns() {
  return {words("subject", "subject"),
          words("made on", "placement"),
          microseconds("round[us]", "ns_per_op", 2),
          microseconds("no cache[us]", "ns_without", 2),
          microseconds("extra[us]", "ns_extra", 2),
          count("stale", "stale")};
}

std::vector<column> beside_columns() {
  return {words("subject", "subject"),
          words("unmapped meanwhile", "meanwhile"),
          number("p50[ns]", "p50_ns", 1, 1),
          number("x quiet", "x_quiet", 1, 2),
          number("p99[ns]", "p99_ns", 1, 1),
          number("p99.9[ns]", "p999_ns", 1, 1),
          number("longest[us]", "longest_ns", 1e-3 * 32, 1),
          count("unmaps/s", "unmaps_per_s")};
}

std::vector<column> hits_columns() {
  return {words("subject", "subject"), count("#cached", "regions"), number("hit[ns]", "ns_per_op", 1, 1),
          number("extra[ns]", "ns_extra", 1, 1)};
}

constexpr std::array<monitor_case, 5> monitor_cases{{
    {"unrelated-munmap", "mmap and munmap of unregistered memory", unrelated_columns},
    {"big-munmap", "one munmap of all cached regions but one", big_columns},
    {"cached-munmap", "munmap, mmap at the same address, and acquire of one region, repeatedly", cached_columns},
    {"hits-beside-munmap", "hits while another thread unmaps memory", beside_columns},
    {"hits", "hits while no memory is unmapped", hits_columns},
}};

template <class... Subjects>
void add_unmapping(json& rows, const bench::parameters& how, const bench::process_without_cache& without) {
  (bench::append(rows, bench::measure_unmapping<Subjects>(how, without)), ...);
}

template <class... Subjects>
void add_hits_beside(json& rows, const bench::parameters& how) {
  (bench::append(rows, bench::measure_hits_beside<Subjects>(how)), ...);
}

json measure_own(const bench::parameters& how) try {
  const bench::process_without_cache without;
  auto rows = json::array();
  add_unmapping<no_cache, by_manual, by_hooks, by_userfaultfd, by_both, by_bpf>(rows, how, without);
  add_hits_beside<by_manual, by_hooks, by_userfaultfd, by_both, by_bpf>(rows, how);
  if (bench::wants(how, "hits"))
    bench::add_rows(
        how, rows,
        bench::compare_hits(how, bench::lanes_of<by_manual, by_hooks, by_userfaultfd, by_both, by_bpf, by_strict>()));
  return rows;
} catch (const std::exception& problem) {
  throw failure(problem.what());
}

json rows_of(const monitor_case& which, const json& rows) {
  auto own = json::array();
  std::ranges::copy_if(rows, std::back_inserter(own), [&](const json& row) { return row.at("case") == which.name; });
  return own;
}

// Sorts the rows by case, in the order of the cases.
json by_case(const json& rows) {
  auto sorted = json::array();
  for (const auto& one : monitor_cases) bench::append(sorted, rows_of(one, rows));
  return sorted;
}

// Adds each row's extra cost over that of the hooks.
void add_ratios(json& rows) {
  for (auto& row : rows) {
    for (const auto& own : rows) {
      if (own.at("subject") != "hooks" || own.at("case") != row.at("case") || row.at("subject") == "hooks") continue;
      if (row.contains("ns_extra") && own.value("ns_extra", 0.0) >= 1 && !row.contains("placement"))
        row["ratio"] = rounded(row.at("ns_extra").get<double>() / own.at("ns_extra").get<double>());
    }
  }
}

void complete(json& rows) {
  rows = by_case(rows);
  add_ratios(rows);
}

std::string tables_of(const json& rows) {
  std::string text;
  for (const auto& one : monitor_cases) {
    const auto own = rows_of(one, rows);
    if (own.empty()) continue;
    text += fmt::format("{}: {}\n{}", one.name, one.title, table(one.columns(), own));
    for (const auto& row : own) {
      if (row.contains("skipped"))
        text += paragraph("  skipped: ",
                          row.at("subject").get<std::string>() + ": " + row.at("skipped").get<std::string>());
    }
    text += "\n";
  }
  return text;
}

int measure(monitor_command command) {
  check_environment();
  if (command.which != "all") command.how.only = command.which;
  const auto host = host_facts();
  show_at_interrupt(
      {.host = host,
       .as_json = command.as_json,
       .heading = [&](const json&) { return fmt::format("pinfold perf monitor\nhost:  {}\n\n", host_line(host)); },
       .tables = tables_of,
       .complete = complete});
  row_count progress;
  command.how.row_done = [&progress](const json& row) {
    progress.step();
    keep_row(row);
  };
  auto rows = measure_own(command.how);
  const auto peers = command.comparison.measure(command.how);
  bench::append(rows, peers.rows);
  return peers.conclude(show_results(rows, peers.notes));
}

void add_length(CLI::App& own, bench::parameters& how) {
  own.add_number("--regions", how.regions.front(), "number of 64 KiB regions that are cached while others are unmapped",
                 1, 10'000'000);
  own.add_number("--many", how.many, "number of cached regions that one munmap unmaps", 1, 10'000'000);
  own.add_number("--repeats", how.repeats, "number of measurements; the median is shown", 1, 1000);
  own.add_seconds("--seconds", how.seconds, "seconds of each measurement", 0.001, 3600.0);
  own.add_seconds("--time-limit", how.time_limit, "seconds after which the filling of a cache is abandoned", 0.1,
                  86'400.0);
}

}  // namespace

void add_perf_monitor(CLI::App& perf, action& chosen) {
  auto command = std::make_shared<monitor_command>();
  auto* own = perf.add_subcommand("monitor", "Cost of the monitors of the program's memory");
  std::vector<std::string> names{"all"};
  for (const auto& one : monitor_cases) names.emplace_back(one.name);
  own->add_option("--case", command->which, "what to measure")->check(CLI::IsMember(names))->capture_default_str();
  add_length(*own, command->how);
  command->comparison.add_to(*own);
  own->add_flag("--json", command->as_json, "print one JSON object");
  own->callback([command, &chosen] { chosen = [command] { return measure(*command); }; });
}

}  // namespace tool

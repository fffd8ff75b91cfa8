// SPDX-License-Identifier: BSD-3-Clause
// `pinfold replay`: the cost of other eviction policies on the same requests.
#include "cli/failure.hpp"
#include "cli/printable.hpp"
#include "cli/report.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/host.hpp"
#include "perf/perf.hpp"
#include "trace/inputs.hpp"
#include "trace/replay/policy.hpp"
#include "trace/replay/simulate.hpp"
#include "trace/replay/synthetic.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tool {
namespace {

struct replay_command {
  std::string trace;
  std::vector<std::string> synthetic;
  std::vector<std::string> budgets{"10%", "25%", "50%"};
  std::vector<std::string> policies;
  std::string costs;
  std::uint64_t seed = 1;
  double misjudge = 1;
  bool as_json = false;
};

template <class Known>
std::vector<std::string> names_of(const Known& known) {
  std::vector<std::string> names;
  for (const auto& one : known) names.emplace_back(one.name);
  return names;
}

std::vector<workload> recorded_workloads(const replay_command& command) {
  std::vector<workload> all;
  auto recorded = read_recorded(command.trace, costs_named(command.costs));
  for (auto& one : recorded.caches)
    if (one.work.objects.size() >= 2) all.push_back(std::move(one.work));
  if (all.empty())
    throw usage_failure(
        fmt::format("{}: no cache has two registrations, so there is no victim to choose", command.trace));
  return all;
}

std::vector<workload> synthetic_workloads(const replay_command& command) {
  const auto* costs = costs_named(command.costs);
  if (costs == nullptr) costs = &all_cost_models().front();
  std::vector<workload> all;
  for (const auto& wanted : command.synthetic) {
    for (const auto& one : all_synthetic()) {
      if (wanted != "all" && wanted != one.name) continue;
      all.push_back(one.make(*costs, command.seed));
      all.back().name = one.name;
    }
  }
  return all;
}

json row_of(const workload& of, const std::string& costs, const replay_budget& budget, const known_policy& how,
            double lru_ns) {
  const auto chooser = how.make(of);
  const auto seen = simulate(of, *chooser, budget.room);
  const auto total = static_cast<double>(of.requests.size());
  json row{{"trace", printable(of.name)},
           {"costs", costs},
           {"budget", budget.text},
           {budget.in_entries ? "budget_entries" : "budget_bytes", budget.room},
           {"policy", how.name},
           {"objects", of.objects.size()},
           {"footprint", of.footprint()},
           {"requests", of.requests.size()},
           {"hits", seen.hits},
           {"misses", seen.misses},
           {"evictions", seen.evictions},
           {"too_large", seen.too_large},
           {"hit_rate", static_cast<double>(seen.hits) / total},
           {"cost_ns", seen.cost_ns}};
  row["x_lru"] = lru_ns > 0 ? seen.cost_ns / lru_ns : 1.0;
  return row;
}

// Runs LRU first: the others are compared with it, shown or not. Stores each row for an interrupt, too.
void replay_with(workload& of, const replay_command& command, const replay_budget& budget, json& rows) {
  count_room(of, budget.in_entries);
  const auto costs = command.costs.empty() ? (command.trace.empty() ? "uring" : "recorded") : command.costs;
  double lru_ns = 0;
  for (const auto& how : all_policies()) {
    const bool first = lru_ns == 0;
    const bool shown =
        command.policies.empty() || std::ranges::find(command.policies, how.name) != command.policies.end();
    if (!first && !shown) continue;
    auto row = row_of(of, costs, budget, how, lru_ns);
    if (first) lru_ns = row.at("cost_ns").get<double>();
    if (!shown) continue;
    rows.push_back(std::move(row));
    keep_rows(rows);
  }
}

std::vector<column> columns() {
  return {words("policy", "policy"),        number("hits[%]", "hit_rate", 100, 2),  count("#misses", "misses"),
          count("#evictions", "evictions"), number("cost[ms]", "cost_ns", 1e-6, 2), number("x lru", "x_lru", 1, 3)};
}

// Returns a table for each trace and budget, as one with a column for these would be wider than a terminal.
std::string tables_of(const json& rows) {
  std::string text;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto differs = [&](const json& row) { return !same("trace", row, *first) || !same("budget", row, *first); };
    const auto end = std::find_if(first, rows.end(), differs);
    text += fmt::format("{}{}, {}\n", text.empty() ? "" : "\n", first->at("trace").get<std::string>(),
                        first->at("budget").get<std::string>());
    text += table(columns(), json(std::vector<json>(first, end)));
    first = end;
  }
  return text;
}

void print_heading(const std::vector<workload>& all, const json& rows) {
  fmt::print("pinfold replay: opens and evictions of each policy\n");
  fmt::print("costs: {}\n\n", rows.front().at("costs").get<std::string>());
  for (const auto& one : all)
    fmt::print("{}: {} requests of {} registrations, {}\n", printable(one.name), one.requests.size(),
               one.objects.size(), size_text(one.footprint()));
  fmt::print("\n");
}

int replay(const replay_command& command) {
  if (command.trace.empty() == command.synthetic.empty())
    throw usage_failure("either a trace or --synthetic is required");
  auto all = command.trace.empty() ? synthetic_workloads(command) : recorded_workloads(command);
  for (auto& one : all) misjudge(one, command.misjudge, command.seed);
  show_at_interrupt({.host = host_facts(), .as_json = command.as_json, .tables = tables_of});
  auto rows = json::array();
  for (auto& one : all)
    for (const auto& text : command.budgets) replay_with(one, command, parse_budget(text, one), rows);
  if (!command.as_json) print_heading(all, rows);
  return show_results(rows);
}

std::string legend() {
  std::string text = "Policies:\n";
  for (const auto& one : all_policies()) text += fmt::format("  {:<15} {}\n", one.name, one.what);
  text += "Synthetic traces:\n";
  for (const auto& one : all_synthetic()) text += fmt::format("  {:<15} {}\n", one.name, one.what);
  text += "Costs:\n";
  for (const auto& one : all_cost_models()) text += fmt::format("  {:<15} {}\n", one.name, one.source);
  return text;
}

void add_options(CLI::App& command, replay_command& into) {
  auto* trace = command.add_option(
      "trace", into.trace,
      "a file written by `pinfold trace`; each cache with two or more registrations is replayed separately");
  auto synthetic = names_of(all_synthetic());
  synthetic.emplace_back("all");
  command.add_option("--synthetic", into.synthetic, "synthetic traces instead of a recorded one")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(synthetic))
      ->excludes(trace);
  command
      .add_option("--budget", into.budgets,
                  "budget: 25% of all bytes, bytes such as 64M, or without a unit a number of registrations")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command.add_option("--policies", into.policies, "only these policies")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names_of(all_policies())));
  command.add_option("--costs", into.costs, "model of the costs of registering [as recorded, or uring]")
      ->check(CLI::IsMember(names_of(all_cost_models())));
  command.add_option("--seed", into.seed, "random seed of the synthetic traces, and of --misjudge")
      ->capture_default_str();
  command.add_number("--misjudge", into.misjudge, "maximum factor by which the policies misestimate costs", 1.0, 1e6);
  command.add_flag("--json", into.as_json, "print one JSON object");
  command.footer(legend());
}

}  // namespace

void add_replay(CLI::App& app, action& chosen) {
  auto command = std::make_shared<replay_command>();
  auto* own = app.add_subcommand("replay", "Compares eviction policies on a recorded trace, by cost");
  add_options(*own, *command);
  own->callback([command, &chosen] { chosen = [command] { return replay(*command); }; });
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
// `pinfold report`: a page about a recorded trace.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/replaced_file.hpp"
#include "commands.hpp"
#include "trace/inputs.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/replay/simulate.hpp"
#include "trace/report/advice.hpp"
#include "trace/report/page.hpp"

#include <pinfold/limits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tool {
namespace {

constexpr std::size_t most_sections = 8;

struct report_command {
  std::string trace;
  std::string output;
  std::string budget;
};

double driver_time(const recorded_cache& of) {
  return std::accumulate(of.misses.begin(), of.misses.end(), 0.0,
                         [](double sum, const recorded_miss& one) { return sum + static_cast<double>(one.opened_ns); });
}

void sort_by_driver_time(std::vector<recorded_cache>& all) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) order.emplace_back(-driver_time(all[i]), i);
  std::ranges::sort(order);
  std::vector<recorded_cache> sorted;
  for (const auto& [time, place] : order) sorted.push_back(std::move(all[place]));
  all = std::move(sorted);
}

// Of two recorded limits, the one with which the cache would have more misses.
std::optional<replay_budget> recorded_budget_of(recorded_cache& of) {
  std::optional<replay_budget> tighter;
  std::uint64_t most = 0;
  for (const auto& [room, in_entries] : {std::pair(of.budget.bytes, false), std::pair(of.budget.count, true)}) {
    if (room == pinfold::unlimited) continue;
    count_room(of.work, in_entries);
    second_chance chooser(of.work);
    const auto misses = simulate(of.work, chooser, room).misses;
    if (!tighter || misses > most) tighter = replay_budget{"", in_entries, room};
    most = std::max(most, misses);
  }
  return tighter;
}

page_cache examine(recorded_cache& of, const std::string& given) {
  const auto budget = given.empty() ? recorded_budget_of(of) : parse_budget(given, of.work);
  const bool in_entries = budget && budget->in_entries;
  analysis_options options;
  if (budget) options.budget = budget->room;
  count_room(of.work, in_entries);
  auto figures = analyse(of, options);
  auto advice = advice_for(of, figures, in_entries);
  return {std::move(figures), std::move(advice), in_entries, {}};
}

page_content content_of(const report_command& command) {
  auto [recorded, notes, cut_lines] = read_recorded(command.trace, nullptr);
  for (auto& one : recorded) one.budget = notes.at(one.number).budget;
  sort_by_driver_time(recorded);
  page_content made{.source = command.trace, .cut_lines = cut_lines, .all = {}, .rest = {}};
  for (auto& one : recorded) {
    auto& list = made.all.size() < most_sections ? made.all : made.rest;
    list.push_back(&list == &made.all ? examine(one, command.budget) : page_cache{summarise(one), {}, false, {}});
    list.back().failed = failures_text({notes[one.number]});
    notes[one.number].failed.clear();
    one = {};
  }
  for (const auto& one : notes) {  // caches without a request that succeeded
    if (one.failed.empty()) continue;
    auto& row = made.rest.emplace_back();
    row.figures.name = one.name;
    row.failed = failures_text({one});
  }
  return made;
}

// Returns whether both names lead to one file, also by links. `-` is standard output, which may append to a file.
bool is_one_file(const std::string& trace, const std::string& page) {
  struct ::stat input{};
  struct ::stat output{};
  const int found = page == "-" ? ::fstat(STDOUT_FILENO, &output) : ::stat(page.c_str(), &output);
  return found == 0 && ::stat(trace.c_str(), &input) == 0 && S_ISREG(input.st_mode) && input.st_dev == output.st_dev &&
         input.st_ino == output.st_ino;
}

int report(const report_command& command) {
  const auto path = command.output.empty() ? command.trace + ".html" : command.output;
  if (is_one_file(command.trace, path))
    throw usage_failure(fmt::format("{}: the trace itself cannot be the page", path));
  const auto page = to_page(content_of(command));
  if (path == "-") {
    fmt::print("{}", page);
    return success;
  }
  replace_file(path, page);
  fmt::print("{}\n", path);
  return success;
}

}  // namespace

void add_report(CLI::App& app, action& chosen) {
  auto command = std::make_shared<report_command>();
  auto* own = app.add_subcommand("report", "Writes a page about a recorded trace, with charts and advice");
  own->add_option("trace", command->trace, "a file written by `pinfold trace`")->required();
  own->add_option("-o,--output", command->output, "the page; `-` for standard output [the trace's name and .html]");
  own->add_option("--budget", command->budget,
                  "budget of all caches, instead of the recorded ones: 25% of all bytes, bytes such as 64M, or without "
                  "a unit a number of registrations");
  own->footer(fmt::format(
      "The page is one HTML file that needs no other. It has a section for each of the {} caches that spent most time "
      "in the driver. How to read it: docs/operate/report.md.",
      most_sections));
  own->callback([command, &chosen] { chosen = [command] { return report(*command); }; });
}

}  // namespace tool

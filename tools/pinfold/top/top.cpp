// SPDX-License-Identifier: BSD-3-Clause
// `pinfold top`: what the caches of this user's processes do.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/page_folder.hpp"
#include "cli/text_width.hpp"
#include "commands.hpp"
#include "top/headline.hpp"
#include "top/json_text.hpp"
#include "top/live.hpp"
#include "top/sample.hpp"
#include "top/selection.hpp"
#include "top/table.hpp"
#include "top/terminal_signals.hpp"

#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tool {
namespace {

using namespace top;

struct top_command {
  bool once = false;
  bool as_json = false;
  double interval = 0;  // seconds; 0: not given
  std::string order = orders().front();
  wanted what;
  std::vector<std::size_t> processes;

  [[nodiscard]] std::chrono::milliseconds time_between() const {
    return std::chrono::milliseconds(interval > 0 ? static_cast<std::int64_t>(interval * 1000) : 1000);
  }
};

std::size_t width_of_output() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const given = std::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): there is one thread
  const auto columns = given != nullptr ? std::strtoul(given, nullptr, 10) : 0;
  return columns > 0 && columns < 10000 ? columns : least_width;
}

void arrange(sample& taken, const top_command& command) {
  filter(taken, command.what);
  sort(taken, command.order);
}

std::string text_of(const sampler& from, sample taken, const top_command& command) {
  auto text = narrowed(headline_of(taken) + (command.interval > 0 ? fmt::format("; rates over {} s", command.interval)
                                                                  : "; rates since each cache was made"));
  const auto nothing = narrowed(nothing_text(from, taken, command.what));
  arrange(taken, command);
  const auto table = table_of(taken, width_of_output());
  if (table.lines.empty()) return text + nothing;
  for (const auto* part : {&table.titles, &table.lines})
    for (const auto& line : *part) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  for (const auto& one : taken.unreadable) text += narrowed(fmt::format("{}: {}", one.path, one.why));
  return text;
}

std::string json_line(sample taken, const top_command& command, int indent) {
  arrange(taken, command);
  return json_of(taken).dump(indent, ' ', false, json::error_handler_t::replace) + "\n";
}

// Throws `failure` when a process that was named has no page.
sample first_sample(sampler& from) {
  auto taken = from.take();
  if (const auto missing = from.missing_from(taken); !missing.empty())
    throw failure(no_page(missing.front(), from.directory()));
  return taken;
}

int print_once(sampler& from, const top_command& command) {
  auto taken = first_sample(from);
  if (command.interval > 0) {
    std::this_thread::sleep_for(command.time_between());
    taken = from.take();
  }
  fmt::print("{}",
             command.as_json ? json_line(std::move(taken), command, 2) : text_of(from, std::move(taken), command));
  return success;
}

[[noreturn]] void print_lines(sampler& from, const top_command& command) {
  for (auto taken = first_sample(from);; taken = from.take()) {
    fmt::print("{}", json_line(std::move(taken), command, -1));
    if (std::ferror(stdout) != 0) throw failure("standard output cannot be written");
    std::this_thread::sleep_for(command.time_between());
  }
}

int show(const top_command& command) {
  sampler from(find_page_folder(command.processes), command.processes);
  if (command.once) return print_once(from, command);
  if (command.as_json) print_lines(from, command);
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1)
    throw usage_failure("needs a terminal; --once prints one table, --json a line for each refresh");
  static_cast<void>(first_sample(from));
  if (const int signal = show_live(from, {command.time_between(), command.order, command.what}); signal != 0)
    die_of(signal);
  return success;
}

}  // namespace

void add_top(CLI::App& app, action& chosen) {
  constexpr std::size_t most_processes = 4194304;  // PID_MAX_LIMIT
  constexpr double shortest = 0.1;                 // as often as counters are published
  constexpr double longest = 86400;
  auto command = std::make_shared<top_command>();
  auto* own = app.add_subcommand("top", "Shows live what the caches of this user's processes do");
  own->add_option("process", command->processes, "ids of processes; all that publish statistics if none is given")
      ->check(CLI::Range(std::size_t{1}, most_processes));
  own->add_flag("--once", command->once, "print one table and end");
  own->add_flag("--json", command->as_json, "print JSON: a line for each refresh, or one object with --once");
  own->add_option("--interval", command->interval,
                  "time between two refreshes (default: 1s); with --once, rates over it")
      ->check(CLI::Range(shortest, longest))
      ->duration(std::chrono::seconds(1));
  own->add_option("--sort", command->order, "the order of processes and caches")
      ->check(CLI::IsMember(orders()))
      ->capture_default_str();
  own->add_option("--filter", command->what.text,
                  "show only processes and caches with this text in the pid, command, state, name or registrar");
  own->add_flag("--ended", command->what.ended, "show also caches that ended in processes that run");
  own->footer(
      "A process publishes with PINFOLD_STATS=on in its environment, or with cache_options::publish_statistics. The "
      "pages of killed processes stay readable.\n"
      "Keys: Up and Down select a cache, Enter shows all about it, Esc goes back, s and S change the order, / filters, "
      "e "
      "shows ended caches, p pauses, q quits.\n"
      "Columns: HIT% hits since the last refresh, ALL% in total; COLD to EVICT misses by reason, in total; OPEN50 and "
      "OPEN99 the driver's opens, median and 99th percentile; EV/S evictions; STALE registrations that turned stale "
      "and "
      "were not handed out; FAILED requests, closes and monitors. - stands for none, or unlimited.");
  own->callback([command, &chosen] { chosen = [command] { return show(*command); }; });
}

}  // namespace tool

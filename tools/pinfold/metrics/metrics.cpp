// SPDX-License-Identifier: BSD-3-Clause
// `pinfold metrics`: the statistics pages as OpenMetrics.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/page_folder.hpp"
#include "cli/replaced_file.hpp"
#include "commands.hpp"
#include "metrics/collection.hpp"
#include "metrics/ending.hpp"
#include "metrics/server.hpp"

#include <pinfold/observation/open_metrics.hpp>

#include <chrono>
#include <csignal>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tool {
namespace {

using pinfold::observation::metrics_format;

constexpr mode_t for_all = 0644;  // a collector may be another user's

struct metrics_command {
  std::vector<std::size_t> pids;
  std::optional<std::string> format;
  std::optional<std::string> output;
  std::optional<std::string> listen;
  double interval_s = 0;
};

metrics_format format_of(const metrics_command& command) {
  if (command.format)
    return *command.format == "openmetrics" ? metrics_format::open_metrics : metrics_format::prometheus;
  return command.output ? metrics_format::prometheus : metrics_format::open_metrics;
}

int complain_of(const collected& seen) {
  for (const auto& one : seen.complaints) static_cast<void>(complain("", failure(one), something_failed));
  return seen.complaints.empty() ? success : something_failed;
}

// A process that is named has a page, when the command is to print it once.
void expect_pages(const metrics_command& command, const collected& seen) {
  if (command.pids.empty() || !seen.processes.empty() || !seen.complaints.empty()) return;
  throw failure(no_page(command.pids.front(), find_page_folder(command.pids).path));
}

// Never waits: the signals that end the tool are blocked.
void write_once(const metrics_command& command, const std::string& path) {
  replace_file(path, collect(command.pids).text(format_of(command)), for_all, false);
}

// Returns why it could not be written, or nothing.
std::string try_to_write(const metrics_command& command, const std::string& path) {
  try {
    write_once(command, path);
    return {};
  } catch (const std::exception& problem) {
    return problem.what();
  }
}

// A disk is full for a while: only the first file must be written. Complains once of each reason.
int write_repeatedly(const metrics_command& command, const std::string& path) {
  const ending_signals ending;
  std::signal(SIGPIPE, SIG_IGN);  // a complaint may have no reader
  const auto period =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(command.interval_s));
  write_once(command, path);
  std::string reason;
  while (!ending.arrived_within(period)) {
    const auto before = std::exchange(reason, try_to_write(command, path));
    if (reason == before) continue;
    static_cast<void>(complain("", failure(reason.empty() ? path + ": is written again" : reason), something_failed));
  }
  return reason.empty() ? success : something_failed;
}

int metrics(const metrics_command& command) {
#ifdef PINFOLD_HAS_MICROHTTPD
  if (command.listen) return serve_metrics(*command.listen, command.pids), success;
#endif
  if (command.output && command.interval_s > 0) return write_repeatedly(command, *command.output);
  const auto seen = collect(command.pids);
  expect_pages(command, seen);
  if (command.output)
    replace_file(*command.output, seen.text(format_of(command)), for_all);
  else
    fmt::print("{}", seen.text(format_of(command)));
  return complain_of(seen);
}

void add_options(CLI::App& to, metrics_command& into) {
  constexpr std::size_t most_processes = 4194304;  // PID_MAX_LIMIT
  constexpr double shortest_s = 0.1;
  constexpr double longest_s = 86400;
  to.add_option("processes", into.pids, "the ids of the processes; without one, all of this user's")
      ->check(CLI::Range(std::size_t{1}, most_processes));
  auto* output = to.add_option("--output", into.output, "write this file instead: readers see it whole");
  to.add_option("--interval", into.interval_s, "write the file again and again, with this time between")
      ->check(CLI::Range(shortest_s, longest_s))
      ->duration(std::chrono::seconds(1))
      ->needs(output);
  [[maybe_unused]] auto* format = to.add_option(
      "--format", into.format, "openmetrics, or prometheus: its text format 0.0.4, which is the default with --output");
  format->check(CLI::IsMember({"openmetrics", "prometheus"}));
#ifdef PINFOLD_HAS_MICROHTTPD
  to.add_option("--listen", into.listen, "serve by HTTP at a path with a /, at 127.0.0.1:PORT or [::1]:PORT")
      ->excludes(output)
      ->excludes(format);
#endif
}

}  // namespace

void add_metrics(CLI::App& app, action& chosen) {
  auto command = std::make_shared<metrics_command>();
  auto* own = app.add_subcommand("metrics", "Shows statistics of caches to Prometheus, as OpenMetrics");
  add_options(*own, *command);
  own->footer(
      "A process publishes its statistics with PINFOLD_STATS=on or `publish_statistics`. Prometheus scrapes `--listen "
      "127.0.0.1:PORT`, which every user of the host can read; a socket at a path is for this user only: `curl "
      "--unix-socket PATH http://localhost/metrics`. A client's Accept header chooses the format. node-exporter's "
      "textfile collector reads `--output FOLDER/pinfold.prom --interval 15s`. While such a file cannot be written "
      "again, as on a full disk, it keeps the old samples; the reason is on standard error once, and so is the end of "
      "the trouble. The exit status is 1 if a page cannot be read, or the last file not be written. "
      "docs/operate/metrics.md has the names, alerts and a dashboard.");
  own->callback([command, &chosen] { chosen = [command] { return metrics(*command); }; });
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf startup`: registering the memory of a large program in the background.
#include "perf/startup/startup.hpp"

#include "cli/failure.hpp"
#include "cli/settings.hpp"
#include "cli/sizes.hpp"
#include "commands.hpp"
#include "info/host.hpp"

#include <pinfold/limits.hpp>
#include <pinfold/settings.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <utility>

namespace tool {
namespace {

constexpr std::array startup_cases{&simulated_case, &real_case, &undisturbed_case, &restore_case};
constexpr std::size_t huge_page = std::size_t{2} << 20U;

struct startup_command {
  startup_options options;
  std::string size;
  std::string piece = "1G";
  std::string limit = "unlimited";
  bool as_json = false;
};

// Returns MemAvailable; all memory where the kernel does not tell.
std::size_t available_memory(const json& host) {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name; file.ignore(256, '\n')) {
    std::size_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return host.at("memory").get<std::size_t>();
}

std::size_t whole_pages(const char* option, const std::string& text) {
  const auto bytes = parse_one_size(text);
  if (bytes % huge_page != 0) throw usage_failure(fmt::format("{} {}: not a multiple of 2 MiB", option, text));
  return bytes;
}

std::string heading(const startup_options& options, const json& host, const json& rows) {
  const auto size = rows.empty() ? "" : ": " + size_text(rows.at(0).at("size").get<std::size_t>());
  return fmt::format("pinfold perf startup, {}{}\nhost:  {}\nlimit: {}\n\n", options.case_name, size, host_line(host),
                     memlock_line(host));
}

int measure(startup_command& command) {
  auto& options = command.options;
  check_environment();
  const auto& chosen = case_named(startup_cases, options.case_name);
  if (!command.size.empty()) options.bytes = whole_pages("--size", command.size);
  options.piece = whole_pages("--piece", command.piece);
  options.limit = parse_one_size(command.limit);
  const auto host = host_facts();
  std::vector<std::string> notes;
  show_at_interrupt({.host = host,
                     .as_json = command.as_json,
                     .heading = [&](const json& rows) { return heading(options, host, rows); },
                     .columns = chosen.columns()});
  const auto rows = chosen.run({options, available_memory(host), notes});
  return show_results(rows, notes);
}

void add_what(CLI::App& command, startup_command& into) {
  auto& options = into.options;
  command
      .add_option(
          "--case", options.case_name,
          "what to measure: a driver simulated at measured costs, real memory over io_uring and mlock, hits that "
          "registration in the background must not disturb, or registering again what a checkpoint closed")
      ->check(CLI::IsMember({"simulated", "real", "undisturbed", "restore"}))
      ->capture_default_str();
  command.add_option("--size", into.size, "bytes to register, e.g. 500G [simulated: 500G; real memory: --fraction]")
      ->size();
  command.add_number("--fraction", options.fraction, "part of the available memory, for real memory", 0.001, 0.5);
  command.add_option("--workers", options.workers, "threads that register, e.g. 1,8")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--piece", into.piece, "largest piece that is registered with one call")
      ->size()
      ->capture_default_str();
  command.add_flag("--json", into.as_json, "print one JSON object");
}

void add_how(CLI::App& command, startup_command& into) {
  auto& options = into.options;
  command.add_option("--limit", into.limit, "largest registration of the simulated driver")
      ->size()
      ->capture_default_str();
  command.add_seconds("--time-limit", options.time_limit,
                      "seconds that all simulated calls may take; if they take longer, they sleep for a part of their "
                      "time",
                      0.01, 86'400.0);
  command.add_seconds("--seconds", options.seconds, "seconds of each measurement of hits", 0.01, 3600.0);
  command.add_number("--repeats", options.repeats, "number of measurements; the median is shown", 1, 1000);
}

}  // namespace

json startup_run::row(std::string_view registrar, std::string_view pages, std::size_t size) const {
  return {
      {"case", options.case_name}, {"subject", registrar}, {"registrar", registrar}, {"pages", pages}, {"size", size},
      {"piece", options.piece}};
}

std::size_t startup_run::real_bytes() const {
  const auto part = static_cast<std::size_t>(static_cast<double>(available) * options.fraction);
  const auto bytes = options.bytes.value_or(std::max(part / huge_page, std::size_t{1}) * huge_page);
  if (bytes > available / 2)
    throw usage_failure(fmt::format("--size {}: more than half of the available memory", size_text(bytes)));
  return bytes;
}

timeline median_of(std::vector<timeline> runs) {
  return median_by(std::move(runs), [](const timeline& one) { return one.total; });
}

void add_timeline(json& row, const timeline& seen, double scale) {
  row["seconds"] = rounded(seen.total * scale);
  row["first_ms"] = rounded(seen.first * scale * 1e3);
  row["half_seconds"] = rounded(seen.half * scale);
  row["longest_call_ms"] = rounded(seen.longest * scale * 1e3);
  row["gb_per_s"] = rounded(row.at("size").get<double>() * 1e-9 / (seen.total * scale));
  row["errors"] = 0;
}

void add_startup_gains(json& rows) {
  add_gains(rows, "seconds", figure_of::time, [](const json& base, const json& row) {
    if (base.at("workers") != 1 || base.value("method", "") == "one thread") return false;
    return std::ranges::all_of(std::array{"registrar", "pages", "driver", "present_by"},
                               [&](const char* key) { return base.value(key, "") == row.value(key, ""); });
  });
}

std::vector<column> timeline_columns() {
  return {number("total[s]", "seconds", 1, 3), number("x 1 worker", "gain", 1, 2),
          number("first piece[ms]", "first_ms", 1, 1), number("half[s]", "half_seconds", 1, 3),
          number("longest call[ms]", "longest_call_ms", 1, 1)};
}

void add_perf_startup(CLI::App& perf, action& chosen) {
  auto command = std::make_shared<startup_command>();
  auto* own = perf.add_subcommand("startup", "Registering hundreds of gigabytes in the background");
  add_what(*own, *command);
  add_how(*own, *command);
  own->callback([command, &chosen] { chosen = [command] { return measure(*command); }; });
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of the subcommands of `pinfold perf`: the length of measurements, limits, and the display of results.
#pragma once

#include "cli/command_line.hpp"
#include "cli/failure.hpp"
#include "cli/report.hpp"
#include "perf/measure.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// The length of each measurement, and their number.
struct measuring {
  std::optional<std::uint64_t> iterations;
  double seconds = 0.2;  ///< when `iterations` is not given
  unsigned repeats = 5;

  /// Adds `--iterations`, which counts `what`, `--seconds` and `--repeats`. This object must live until the command
  /// line is parsed.
  void add_to(CLI::App& command, const char* what);
};

/// The operations of one measurement: a given number, or a given time, and one at least.
class stint {
 public:
  explicit stint(const measuring& how);

  /// Returns whether there is to be another operation.
  [[nodiscard]] bool goes_on();

 private:
  std::optional<std::uint64_t> left_;
  bool begun_ = false;
  std::chrono::steady_clock::time_point end_;
};

/// One case of a subcommand, which measures with a `Run`.
template <class Run>
struct perf_case {
  const char* name;
  json (*run)(const Run&);           ///< returns its rows; throws `failure` when it cannot even start
  std::vector<column> (*columns)();  ///< the columns that people see
  const char* default_sizes;
};

/// Returns the case with that name. Throws `usage_failure`.
template <class Cases>
const auto& case_named(const Cases& cases, std::string_view name) {
  for (const auto* known : cases) {
    if (name == known->name) return *known;
  }
  throw usage_failure("unknown case " + std::string(name));
}

/// Throws `usage_failure` when `count` buffers of one of the sizes need more than half of the machine's memory.
void check_memory(std::size_t count, const std::vector<std::size_t>& sizes, const json& host);

/// How the results of a measurement are shown: for programs, or as a table for people.
struct presentation {
  json host;
  bool as_json = false;
  /// Returns the heading for people; empty when it has been printed already.
  std::function<std::string(const json& rows)> heading{};
  std::vector<column> columns{};
  /// Returns the tables of rows, instead of the one table of `columns`.
  std::function<std::string(const json& rows)> tables{};
  /// Adds to the rows what is computed from all of them.
  std::function<void(json& rows)> complete{};
};

/// Sets how results are shown. From now on `keep_rows` stores what an interrupt prints (`interrupted_output.hpp`). For
/// one thread.
void present_rows(presentation how);

/// The same, and SIGINT, SIGTERM and SIGHUP print the rows that are complete and end the process.
void show_at_interrupt(presentation how);

/// Keeps these rows instead of those before. Does nothing before `present_rows`.
void keep_rows(const json& rows);

/// Adds a row to those that are kept.
void keep_row(json row);

/// Prints the rows, then `notes` and why rows were skipped, as `present_rows` was told; a signal that comes
/// meanwhile ends the process when they are printed. Returns the exit status: 1 when the rows count errors.
[[nodiscard]] int show_results(const json& rows, const std::vector<std::string>& notes = {});

/// The same for a command that keeps no rows.
[[nodiscard]] int show_results(const json& host, const json& rows, const std::vector<column>& columns, bool as_json,
                               const std::vector<std::string>& notes = {});

/// Prints the first error of a measurement on standard error.
void report_error(std::string_view subject, const pinfold::error& why);

}  // namespace tool

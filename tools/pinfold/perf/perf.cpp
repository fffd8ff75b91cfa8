// SPDX-License-Identifier: BSD-3-Clause
#include "perf/perf.hpp"

#include "cli/interrupted_output.hpp"
#include "cli/sizes.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace tool {
namespace {

std::string extent_of(const json& row) {
  if (row.contains("size")) return size_text(row.at("size").get<std::size_t>());
  return fmt::format("{} regions on {} threads,", row.at("regions").get<std::size_t>(),
                     row.at("threads").get<unsigned>());
}

std::vector<std::string> reasons_in(const json& rows) {
  std::vector<std::string> reasons;
  for (const auto& row : rows) {
    if (!row.contains("skipped")) continue;
    auto reason = fmt::format("skipped: {} {}{}: {}", extent_of(row), row.at("subject").get<std::string>(),
                              row.contains("pages") ? " on " + row.at("pages").get<std::string>() + " pages" : "",
                              row.at("skipped").get<std::string>());
    if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(std::move(reason));
  }
  return reasons;
}

// What `present_rows` was told, and the rows so far.
presentation& shown() {
  static presentation how;
  return how;
}

json& kept() {
  static auto rows = json::array();
  return rows;
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const auto& note : notes) text += paragraph("  ", note);
  return text;
}

std::string results_text(json rows, const std::vector<std::string>& notes) {
  const auto& how = shown();
  if (how.complete) how.complete(rows);
  if (how.as_json) return json_text(how.host, rows, notes);
  auto text = (how.heading ? how.heading(rows) : "") + (how.tables ? how.tables(rows) : table(how.columns, rows));
  const auto reasons = how.tables ? std::vector<std::string>() : reasons_in(rows);
  if (!how.tables && (!notes.empty() || !reasons.empty())) text += "\n";
  return text + notes_text(notes) + notes_text(reasons);
}

}  // namespace

void measuring::add_to(CLI::App& command, const char* what) {
  command.add_option("--iterations", iterations, fmt::format("{} of each measurement", what))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
  command.add_seconds("--seconds", seconds, "seconds of each measurement, without --iterations", 0.001, 3600.0);
  command.add_number("--repeats", repeats, "number of measurements; the median is shown", 1, 1000);
}

stint::stint(const measuring& how)
    : left_(how.iterations),
      end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                  std::chrono::duration<double>(how.seconds))) {}

bool stint::goes_on() {
  if (left_) return (*left_)-- > 0;
  return !std::exchange(begun_, true) || std::chrono::steady_clock::now() < end_;
}

void check_memory(std::size_t count, const std::vector<std::size_t>& sizes, const json& host) {
  const auto most = host.at("memory").get<std::size_t>() / 2;
  for (const auto size : sizes) {
    if (size <= most / count) continue;
    throw usage_failure(
        fmt::format("{} buffers of {} are more than half of this machine's memory", count, size_text(size)));
  }
}

void present_rows(presentation how) {
  shown() = std::move(how);
  keep_rows(json::array());
}

void show_at_interrupt(presentation how) {
  present_rows(std::move(how));
  handle_interrupts();
}

void keep_rows(const json& rows) {
  if (shown().host.is_null()) return;
  kept() = rows;
  print_at_interrupt(results_text(rows, {rows.empty() ? "interrupted before the first row was complete"
                                                      : "interrupted: these rows were complete"}));
}

void keep_row(json row) {
  auto all = kept();
  all.push_back(std::move(row));
  keep_rows(all);
}

int show_results(const json& rows, const std::vector<std::string>& notes) {
  const final_output whole;
  fmt::print("{}", results_text(rows, notes));
  return total_errors(rows) == 0 ? 0 : 1;
}

int show_results(const json& host, const json& rows, const std::vector<column>& columns, bool as_json,
                 const std::vector<std::string>& notes) {
  shown() = {.host = host, .as_json = as_json, .columns = columns};
  return show_results(rows, notes);
}

void report_error(std::string_view subject, const pinfold::error& why) {
  fmt::print(stderr, "pinfold: {}: {}\n", subject, pinfold::describe(why));
}

}  // namespace tool

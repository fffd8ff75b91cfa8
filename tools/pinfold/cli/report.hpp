// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Results as flat rows: printed as one JSON object for programs, or as a table for people.
#pragma once

#include "perf/measure.hpp"

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

using json = nlohmann::ordered_json;

/// One column of a table: its title, and its value for a row.
struct column {
  std::string title;
  std::function<std::string(const json& row)> cell;
  bool left = false;  ///< aligned to the left: for words
};

/// Returns a column of words, numbers, whole numbers or sizes under `key`; `-` in rows without that key.
[[nodiscard]] column words(std::string title, std::string key);
[[nodiscard]] column number(std::string title, std::string key, double scale, int decimals);
[[nodiscard]] column count(std::string title, std::string key);
[[nodiscard]] column size(std::string title, std::string key);

/// Returns a column that shows nanoseconds as microseconds.
[[nodiscard]] column microseconds(std::string title, std::string key, int decimals);

/// Returns the columns, and that of the errors behind them.
[[nodiscard]] std::vector<column> with_errors(std::vector<column> columns);

/// Returns the rows as lines with aligned columns and a headline. Where neighbours share their first cell, empty lines
/// separate the groups.
[[nodiscard]] std::string table(const std::vector<column>& columns, const json& rows);

/// Breaks `text` at blanks into lines of `help_width`; the first begins with `head`, the others are indented
/// below it.
[[nodiscard]] std::string paragraph(const std::string& head, std::string_view text);

/// Rounds to three decimals, or to three digits of smaller numbers, as in rows.
[[nodiscard]] double rounded(double value);

/// Adds the measurements to a row: `iterations`, `ns_per_op`, `p50_ns`, `p99_ns`, `p999_ns`; only the first where no
/// operation succeeded, so that no figure looks like a measured zero.
void add_latency(json& row, const latency& measured);

/// Returns `{"host": …, "rows": …}` as text, with `"notes"` when there are any.
[[nodiscard]] std::string json_text(const json& host, const json& rows, const std::vector<std::string>& notes = {});

/// Prints that text on standard output.
void print_json(const json& host, const json& rows, const std::vector<std::string>& notes = {});

/// What a figure is: of two rates the larger is better, of two times the smaller.
enum class figure_of { rate, time };

/// Adds `gain` to each row: how many times better its figure `key` is than that of its base, which is the first row
/// with `is_base(base, row)`. Rows without the figure, or whose base has none, get no gain.
void add_gains(json& rows, const char* key, figure_of kind,
               const std::function<bool(const json& base, const json& row)>& is_base);

/// Returns whether both rows have the same value under `key`.
[[nodiscard]] bool same(const char* key, const json& one, const json& other);

/// Returns how many errors the rows count.
[[nodiscard]] std::size_t total_errors(const json& rows);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Results as flat rows: printed as one JSON object for programs, or as a table for people.
#pragma once

#include "measure.hpp"

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

using json = nlohmann::ordered_json;

/// One column of a table: how it is called, and what it shows of a row.
struct column {
  std::string title;
  std::function<std::string(const json& row)> cell;
  bool left = false;  ///< aligned to the left: for words
};

/// A column of words, numbers or sizes under `key`; `-` in rows that have no such key.
[[nodiscard]] column words(std::string title, std::string key);
[[nodiscard]] column number(std::string title, std::string key, double scale, int decimals);
[[nodiscard]] column size(std::string title, std::string key);

/// The rows as lines with aligned columns and a headline. Where neighbours share their first cell, empty lines part the
/// groups.
[[nodiscard]] std::string table(const std::vector<column>& columns, const json& rows);

/// `text` broken into lines of a terminal's width, at blanks; the first begins with `head`, the others stand below it.
[[nodiscard]] std::string paragraph(const std::string& head, std::string_view text);

/// To three decimals, or three digits of what is less, as rows have it.
[[nodiscard]] double rounded(double value);

/// Adds what was measured to a row: `iterations`, `ns_per_op`, `p50_ns`, `p99_ns`, `p999_ns`; the first alone where
/// nothing succeeded, so that no figure looks like a measured zero.
void add_latency(json& row, const latency& measured);

/// Prints `{"host": …, "rows": …}` on standard output, with `"notes"` when there are any.
void print_json(const json& host, const json& rows, const std::vector<std::string>& notes = {});

/// How many errors the rows count.
[[nodiscard]] std::size_t total_errors(const json& rows);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
#include "cli/report.hpp"

#include "cli/sizes.hpp"
#include "cli/text_width.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

namespace tool {
namespace {

constexpr const char* nothing = "-";
constexpr const char* gap = "  ";

using cells = std::vector<std::string>;

cells titles_of(const std::vector<column>& columns) {
  cells titles;
  for (const auto& column : columns) titles.push_back(column.title);
  return titles;
}

cells cells_of(const std::vector<column>& columns, const json& row) {
  cells texts;
  for (const auto& column : columns) texts.push_back(column.cell(row));
  return texts;
}

std::vector<std::size_t> widths_of(const std::vector<cells>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  return widths;
}

std::string aligned(const cells& line, const std::vector<column>& columns, const std::vector<std::size_t>& widths) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    text += gap;
    text += columns[i].left ? fmt::format("{:<{}}", line[i], widths[i]) : fmt::format("{:>{}}", line[i], widths[i]);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

// Rows that belong together have the same first cell.
bool has_groups(const std::vector<cells>& lines) {
  const auto same = [](const cells& a, const cells& b) { return a.front() == b.front(); };
  return std::adjacent_find(lines.begin(), lines.end(), same) != lines.end();
}

}  // namespace

double rounded(double value) {
  const auto first_digit = value == 0 ? 0 : std::floor(std::log10(std::abs(value)));
  const auto scale = std::pow(10, std::max(3.0, 2 - first_digit));
  return std::round(value * scale) / scale;
}

column words(std::string title, std::string key) {
  return {std::move(title), [key = std::move(key)](const json& row) { return row.value(key, std::string(nothing)); },
          true};
}

column number(std::string title, std::string key, double scale, int decimals) {
  return {std::move(title), [key = std::move(key), scale, decimals](const json& row) {
            const auto found = row.find(key);
            if (found == row.end()) return std::string(nothing);
            return fmt::format("{:.{}f}", found->get<double>() * scale, decimals);
          }};
}

column size(std::string title, std::string key) {
  return {std::move(title),
          [key = std::move(key)](const json& row) { return size_text(row.at(key).get<std::size_t>()); }};
}

column count(std::string title, std::string key) { return number(std::move(title), std::move(key), 1, 0); }

column microseconds(std::string title, std::string key, int decimals) {
  return number(std::move(title), std::move(key), 1e-3, decimals);
}

std::vector<column> with_errors(std::vector<column> columns) {
  columns.push_back(count("errors", "errors"));
  return columns;
}

std::string table(const std::vector<column>& columns, const json& rows) {
  std::vector<cells> lines{titles_of(columns)};
  for (const auto& row : rows) lines.push_back(cells_of(columns, row));
  const auto widths = widths_of(lines);
  const bool groups = has_groups(lines);
  std::string text = aligned(lines.front(), columns, widths);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (groups && i > 1 && lines[i].front() != lines[i - 1].front()) text += "\n";
    text += aligned(lines[i], columns, widths);
  }
  return text;
}

std::string paragraph(const std::string& head, std::string_view text) {
  std::string lines = head;
  std::size_t column = head.size();
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (column > head.size() && column + word.size() > help_width) {
      lines.back() = '\n';
      lines.append(head.size(), ' ');
      column = head.size();
    }
    lines.append(word).append(" ");
    column += word.size() + 1;
  }
  lines.back() = '\n';
  return lines;
}

void add_latency(json& row, const latency& measured) {
  row["iterations"] = measured.iterations;
  if (measured.iterations == 0) return;
  row["ns_per_op"] = rounded(measured.average);
  row["p50_ns"] = measured.p50;
  row["p99_ns"] = measured.p99;
  row["p999_ns"] = measured.p999;
}

std::string json_text(const json& host, const json& rows, const std::vector<std::string>& notes) {
  json whole{{"host", host}, {"rows", rows}};
  if (!notes.empty()) whole["notes"] = notes;
  return whole.dump(2) + "\n";
}

void print_json(const json& host, const json& rows, const std::vector<std::string>& notes) {
  fmt::print("{}", json_text(host, rows, notes));
}

void add_gains(json& rows, const char* key, figure_of kind,
               const std::function<bool(const json& base, const json& row)>& is_base) {
  for (auto& row : rows) {
    const auto base = std::ranges::find_if(rows, [&](const json& one) { return is_base(one, row); });
    if (base == rows.end() || !base->contains(key) || !row.contains(key)) continue;
    const auto ratio = row.at(key).get<double>() / base->at(key).get<double>();
    row["gain"] = rounded(kind == figure_of::rate ? ratio : 1 / ratio);
  }
}

bool same(const char* key, const json& one, const json& other) { return one.at(key) == other.at(key); }

std::size_t total_errors(const json& rows) {
  std::size_t sum = 0;
  for (const auto& row : rows) sum += row.value("errors", std::size_t{0});
  return sum;
}

}  // namespace tool

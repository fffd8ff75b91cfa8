// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The table of results in the documentation.
#pragma once

#include "support/hazards/hazard_stage.hpp"

#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::testing {

/// A table between two markers of a page in Markdown.
class hazard_table {
 public:
  /// Reads the page; without a page there is only the heading.
  explicit hazard_table(std::string path) : path_(std::move(path)) {
    std::ifstream page(path_);
    std::string* into = &front_;
    for (std::string line; std::getline(page, line);) {
      if (line == end_marker) into = &back_;
      if (into == nullptr) read(line);
      if (into != nullptr && line != end_marker) *into += line + '\n';
      if (line == begin_marker) into = nullptr;
    }
    readable_ = page.eof();
  }

  [[nodiscard]] bool readable() const { return readable_; }

  [[nodiscard]] std::optional<std::string> cell(const std::string& row, const std::string& column) const {
    const auto of = cells_.find(row);
    if (of == cells_.end()) return std::nullopt;
    const auto found = of->second.find(column);
    return found == of->second.end() ? std::nullopt : std::optional(found->second);
  }
  void set(const std::string& row, const std::string& column, const std::string& text) { cells_[row][column] = text; }

  /// Writes the page with these rows and columns, in this order. Marks cells without a result.
  void write(const std::vector<std::string>& rows, const std::vector<std::string>& columns) const {
    std::ofstream page(path_);
    page << (front_.empty() ? "# Monitors\n\n" : front_);
    if (front_.find(begin_marker) == std::string::npos) page << begin_marker << '\n';
    page << "| event |";
    for (const auto& column : columns) page << ' ' << column << " |";
    page << "\n|---|";
    for (std::size_t i = 0; i < columns.size(); ++i) page << "---|";
    for (const auto& row : rows) {
      page << "\n| " << row << " |";
      for (const auto& column : columns) page << ' ' << cell(row, column).value_or("unknown here") << " |";
    }
    page << '\n' << end_marker << '\n' << back_;
  }

 private:
  static constexpr std::string_view begin_marker = "<!-- hazards: scripts/hazards-table -->";
  static constexpr std::string_view end_marker = "<!-- end of hazards -->";

  void read(const std::string& line) {
    if (!line.starts_with("| ")) return;
    std::vector<std::string> parts;
    std::istringstream text(line.substr(1));
    for (std::string part; std::getline(text, part, '|');)
      parts.push_back(part.size() > 2 ? part.substr(1, part.size() - 2) : std::string());
    if (columns_.empty()) {
      columns_ = parts;
      return;
    }
    for (std::size_t i = 1; i < parts.size() && i < columns_.size(); ++i) cells_[parts[0]][columns_[i]] = parts[i];
  }

  std::string path_, front_, back_;
  bool readable_ = false;
  std::vector<std::string> columns_;
  std::map<std::string, std::map<std::string, std::string>> cells_;
};

}  // namespace pinfold::testing

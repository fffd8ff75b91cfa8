// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Figures as flat rows.
#pragma once

#include "parameters.hpp"
#include "sampling_windows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

namespace bench {

[[nodiscard]] inline double rounded(double value) { return std::round(value * 1000) / 1000; }

[[nodiscard]] inline json row_of(const char* subject, std::size_t regions, unsigned threads, const char* pattern) {
  return {{"subject", subject}, {"regions", regions}, {"threads", threads}, {"pattern", pattern}};
}

inline void add_figure(json& row, const figure& measured, std::uint64_t errors) {
  row["ns_per_op"] = rounded(measured.ns_per_operation);
  row["ns_slowest"] = rounded(std::ranges::max(measured.ns_of_threads));
  row["mops"] = rounded(measured.operations_per_us);
  row["windows"] = measured.windows;
  row["undisturbed"] = measured.undisturbed;
  row["errors"] = errors;
}

inline void append(json& rows, json more) {
  for (auto& row : more) rows.push_back(std::move(row));
}

/// Adds a row that is complete, and reports it.
inline void add_row(const parameters& how, json& rows, json row) {
  rows.push_back(std::move(row));
  if (how.row_done) how.row_done(rows.back());
}

inline void add_rows(const parameters& how, json& rows, json more) {
  for (auto& row : more) add_row(how, rows, std::move(row));
}

/// Returns a row without figures that says why.
[[nodiscard]] inline json skipped_row(json row, const std::exception& why) {
  row["skipped"] = why.what();
  row["errors"] = 0;
  return row;
}

/// Returns whether two rows measure the same, except for the field `left_out`.
[[nodiscard]] inline bool same_but(const char* left_out, const json& a, const json& b) {
  constexpr std::array<const char*, 7> keys{"case", "subject", "regions", "threads", "pattern", "layout", "meanwhile"};
  for (const char* key : keys) {
    if (std::string_view(key) == left_out) continue;
    if (a.contains(key) != b.contains(key) || (a.contains(key) && a.at(key) != b.at(key))) return false;
  }
  return true;
}

/// Adds `gain`: each row's throughput over that of the same case on one thread.
inline void add_gains(json& rows) {
  for (auto& row : rows) {
    for (const auto& one : rows) {
      if (one.value("threads", 0) != 1 || !row.contains("mops") || !one.contains("mops")) continue;
      if (!same_but("threads", row, one) || one.at("mops") == 0) continue;
      row["gain"] = rounded(row.at("mops").get<double>() / one.at("mops").get<double>());
    }
  }
}

}  // namespace bench

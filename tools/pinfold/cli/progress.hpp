// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Progress for users of long measurements.
#pragma once

#include <chrono>
#include <cstddef>

namespace tool {

/// Draws on standard error, if that is a terminal and the work has taken two seconds; wiped at the end.
class progress_bar {
 public:
  explicit progress_bar(std::size_t steps) noexcept;
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;
  ~progress_bar();

  /// Counts more steps as done.
  void step(std::size_t count = 1);

 private:
  using clock = std::chrono::steady_clock;
  std::size_t steps_;
  std::size_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  clock::time_point start_;
  clock::time_point drawn_at_{};
};

/// Shows how many rows are complete, where their number is not known before, under the same conditions.
class row_count {
 public:
  row_count() noexcept;
  row_count(const row_count&) = delete;
  row_count& operator=(const row_count&) = delete;
  ~row_count();

  /// Counts a row as complete.
  void step();

 private:
  std::size_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tool

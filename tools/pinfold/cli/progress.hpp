// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A progress bar for users of long measurements.
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
  std::size_t steps_;
  std::size_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tool

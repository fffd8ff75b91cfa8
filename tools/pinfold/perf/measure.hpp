// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Times single operations, and summarises many.
#pragma once

#include "bench/sampling_windows.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

namespace tool {

using nanoseconds = std::vector<std::uint64_t>;  ///< one sample an operation

/// The summary of a run's samples, in nanoseconds.
struct latency {
  std::uint64_t iterations = 0;
  double average = 0;
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
};

/// Summarises the samples. All fields are zero when there are none.
[[nodiscard]] latency summarise(nanoseconds samples);

using bench::median_by;

/// Returns the run whose average is the median.
[[nodiscard]] latency median_run(std::vector<latency> runs);

/// Returns the time that `operation` takes.
template <class Operation>
std::uint64_t time_of(Operation&& operation) {
  const auto begin = std::chrono::steady_clock::now();
  operation();
  const auto took = std::chrono::steady_clock::now() - begin;
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count());
}

}  // namespace tool

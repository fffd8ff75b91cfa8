// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of the cases of `pinfold perf startup`: registering everything in the background, and its timeline.
#pragma once

#include "cli/progress.hpp"
#include "perf/perf.hpp"

#include <pinfold/background.hpp>
#include <pinfold/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// The options on the command line. Each case chooses its own defaults.
struct startup_options {
  std::string case_name = "simulated";
  std::optional<std::size_t> bytes;
  std::size_t piece = std::size_t{1} << 30U;
  std::size_t limit = 0;  ///< the simulated driver's largest registration
  std::vector<unsigned> workers{1, 8};
  double time_limit = 24;  ///< seconds that simulated calls may take in all
  double fraction = 0.25;  ///< of the available memory
  double seconds = 1;      ///< of each measurement of hits
  unsigned repeats = 1;
};

/// One run of a case.
struct startup_run {
  const startup_options& options;
  std::size_t available;            ///< memory of the machine that can be had now, in bytes
  std::vector<std::string>& notes;  ///< for people, printed once

  /// Returns a row with the parameters that all cases have.
  [[nodiscard]] json row(std::string_view registrar, std::string_view pages, std::size_t size) const;

  /// Returns the real memory to register: the requested size, else the fraction of what is available, in whole huge
  /// pages. Throws `usage_failure` when it is more than half of what is available.
  [[nodiscard]] std::size_t real_bytes() const;
};

/// What became ready when, in seconds from the start.
struct timeline {
  double first = 0;  ///< the first piece
  double half = 0;   ///< half of the range, from its beginning
  double total = 0;
  double longest = 0;  ///< the longest call of the driver
};

/// Returns the median by the total time.
[[nodiscard]] timeline median_of(std::vector<timeline> runs);

/// Adds the timeline to a row; all times are multiplied by `scale`.
void add_timeline(json& row, const timeline& seen, double scale);

/// Adds how many times faster each row is than that with one worker of the same kind.
void add_startup_gains(json& rows);

/// Returns the columns of a timeline.
[[nodiscard]] std::vector<column> timeline_columns();

// The cases.
extern const perf_case<startup_run> simulated_case, real_case, undisturbed_case, restore_case;

}  // namespace tool

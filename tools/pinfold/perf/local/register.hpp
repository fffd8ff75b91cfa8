// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of the cases of `pinfold perf register`.
#pragma once

#include "perf/local/local.hpp"
#include "perf/local/uring.hpp"

#include <pinfold/options.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// The options on the command line. Each case chooses its own defaults.
struct register_options : measuring {
  std::string case_name = "size";
  std::vector<std::size_t> sizes;
  std::optional<pinfold::page_kind> pages;
  std::optional<unsigned> slots;
  std::size_t count = 10'000;
  unsigned workers = 4;
  unsigned delay_ms = 1;
  std::size_t chunk = std::size_t{512} << 10;
  unsigned depth = 4;
  unsigned queue_depth = 4;
  std::string directory;
  pinfold::cache_options cache;
};

/// The ring and options of one run.
struct register_run {
  const register_options& options;
  uring& ring;
  std::vector<std::string>& notes;  ///< for people, printed once

  /// Returns a row with the parameters that all cases have.
  [[nodiscard]] json row(std::string_view subject, std::size_t size) const;
};

// The cases.
extern const perf_case<register_run> size_case, batch_case, pipeline_case;

}  // namespace tool

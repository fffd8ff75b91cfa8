// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The pages of this user's processes as one text.
#pragma once

#include <pinfold/observation/open_metrics.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

/// One reading of the pages.
struct collected {
  std::vector<pinfold::observation::process_snapshot> processes;
  std::vector<std::string> complaints;  ///< one for each page that could not be read

  /// Returns the text, with the number of complaints as a sample.
  [[nodiscard]] std::string text(pinfold::observation::metrics_format as) const;
};

/// Reads the pages of these processes, or of all of this user's where `pids` is empty. A page that its process removes
/// meanwhile is left out. Throws `failure` when the folder cannot be read.
[[nodiscard]] collected collect(const std::vector<std::size_t>& pids);

}  // namespace tool

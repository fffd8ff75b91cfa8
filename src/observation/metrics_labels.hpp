// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The labels of processes and caches in metrics.
#pragma once

#include <pinfold/observation/reader.hpp>

#include <span>
#include <string>
#include <vector>

namespace pinfold::observation {

struct labelled_cache {
  const cache_snapshot* cache;
  std::string labels;
};

struct labelled_process {
  const process_snapshot* process;
  std::string labels;
  std::vector<labelled_cache> caches;  ///< empty for a process that ended
};

using processes = std::vector<labelled_process>;

/// Returns the snapshots with distinct labels, whatever the snapshots contain. They refer to `of`.
[[nodiscard]] processes label_all(std::span<const process_snapshot> of);

}  // namespace pinfold::observation

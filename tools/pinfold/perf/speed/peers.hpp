// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Other registration caches, measured by programs of their own: they patch the C library, and must not patch ours.
#pragma once

#include "cli/report.hpp"

#include "bench/parameters.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace tool {

/// The results of the peers' programs.
struct peer_results {
  json rows = json::array();
  std::vector<std::string> notes;     ///< about peers that were not built
  std::vector<std::string> failures;  ///< about peers that ended badly
};

/// Runs each program that exists, one after the other. Looks for them in `directory` only or, if that is empty, beside
/// this program and in `../libexec/pinfold`. Ends a program that takes longer than `limit`.
[[nodiscard]] peer_results measure_peers(const bench::parameters& how, const std::string& directory,
                                         std::chrono::seconds limit);

}  // namespace tool

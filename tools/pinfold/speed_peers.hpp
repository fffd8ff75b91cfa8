// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Other registration caches, measured by programs of their own: they patch the C library, and must not patch ours.
#pragma once

#include "report.hpp"

#include "bench/parameters.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace tool {

/// What came of asking the peers.
struct peer_results {
  json rows = json::array();
  std::vector<std::string> notes;     ///< about peers that were not built
  std::vector<std::string> failures;  ///< about peers that ended badly
};

/// Runs each program that is there, one after the other. They are looked for in `directory` only, or if that is empty,
/// beside this program and in `../libexec/pinfold`. One that takes longer than `limit` is ended.
[[nodiscard]] peer_results measure_peers(const bench::parameters& how, const std::string& directory,
                                         std::chrono::seconds limit);

}  // namespace tool

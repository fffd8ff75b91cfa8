// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Wrong costs: a cache that measures an open has one figure for it, which may be far off.
#pragma once

#include "trace/replay/workload.hpp"

#include <cmath>
#include <cstdint>
#include <random>

namespace tool {

/// Makes policies misjudge each object's cost by a random factor, up to `factor` or one over it; the exponent is
/// uniform between -1 and 1. The cost that is paid stays the same.
inline void misjudge(workload& of, double factor, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (auto& one : of.objects) {
    const double share = static_cast<double>(generator() >> 11) * 0x1p-53;
    one.misjudged = std::pow(factor, 2 * share - 1);
  }
}

}  // namespace tool

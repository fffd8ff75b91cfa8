// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache that measures an open has one figure for it, which may be far off.
#pragma once

#include "workload.hpp"

#include <cmath>
#include <cstdint>
#include <random>

namespace tool {

/// From now on policies take each object's cost for up to `factor` times more or less than it is: any power of it
/// between -1 and 1 is as likely. What is paid remains what it was.
inline void misjudge(workload& of, double factor, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (auto& one : of.objects) {
    const double share = static_cast<double>(generator() >> 11) * 0x1p-53;
    one.misjudged = std::pow(factor, 2 * share - 1);
  }
}

}  // namespace tool

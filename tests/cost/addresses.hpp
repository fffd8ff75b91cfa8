// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The addresses that the instruction-counting programs acquire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinfold::testing {

inline constexpr std::uintptr_t region = 65536;

/// Returns addresses in an order that is not theirs, but the same in every run: each so many regions from the next, or
/// with 0 a sixteenth of a region, so that regions overlap.
inline std::vector<std::uintptr_t> addresses(std::size_t regions, std::size_t apart) {
  const auto step = apart == 0 ? region / 16 : region * apart;
  std::vector<std::uintptr_t> all(regions);
  for (std::size_t i = 0; i < regions; ++i) all[i] = region * 4096 + i * 7919 % regions * step;
  return all;
}

}  // namespace pinfold::testing

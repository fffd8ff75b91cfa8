// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The addresses that the instruction-counting programs acquire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinfold::testing {

inline constexpr std::uintptr_t region = 65536;

/// Returns addresses far apart in an order that no hint follows, but the same in every run.
inline std::vector<std::uintptr_t> addresses(std::size_t regions) {
  std::vector<std::uintptr_t> all(regions);
  for (std::size_t i = 0; i < regions; ++i) all[i] = region * (4096 + i * 7919 % regions);
  return all;
}

}  // namespace pinfold::testing

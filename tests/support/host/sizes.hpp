// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Units of memory.
#pragma once

#include <cstddef>

namespace pinfold::testing {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = kib * kib;

}  // namespace pinfold::testing

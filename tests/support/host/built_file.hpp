// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Files of the build that tests start or load.
#pragma once

#include <cstdlib>

namespace pinfold::testing {

/// Returns the path that the environment variable names, as for a copy of the build (scripts/gpu-bundle), or else
/// `recorded`, CMake's.
inline const char* built_file(const char* variable, const char* recorded) noexcept {
  const char* other = std::getenv(variable);
  return other != nullptr ? other : recorded;
}

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The name that a misspelt one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Returns the name that differs least from `wrong`, or the only one that begins with it. Returns an empty string when
/// none is near.
[[nodiscard]] std::string nearest_name(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Histograms drawn as bars.
#pragma once

#include <pinfold/observation/layout.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tool::top {

/// What the values of a histogram are.
enum class value_of_bar { nanoseconds, hits };

/// Returns a line for each bucket from the first to the last one in use, of at most `width` columns; none for an empty
/// histogram.
[[nodiscard]] std::vector<std::string> bars_of(const pinfold::observation::histogram& of, value_of_bar kind,
                                               std::size_t width);

}  // namespace tool::top

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Sentences about a sample.
#pragma once

#include "top/sample.hpp"
#include "top/selection.hpp"

#include <string>

namespace tool::top {

/// Returns how many processes and caches there are, and in which state.
[[nodiscard]] std::string headline_of(const sample& taken);

/// Returns the reason for an empty table.
[[nodiscard]] std::string nothing_text(const sampler& from, const sample& taken, const wanted& what);

}  // namespace tool::top

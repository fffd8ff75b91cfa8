// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Converts options of the C interface to those of the engine.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/options.hpp>
#include <pinfold/pinfold.h>

namespace pinfold::c {

/// Returns the options for a cache, whose sink is called as a callback of `cache`. `given` null: the defaults.
[[nodiscard]] result<cache_options> as_cpp(const pinfold_options* given, const pinfold_cache* cache);

}  // namespace pinfold::c

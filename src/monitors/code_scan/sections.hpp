// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the parts of a loaded file that are code. A linker may put tables and names into the same executable memory.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <vector>

namespace pinfold::monitors::code_scan {

/// Returns the executable sections of this region's file, at the addresses where they are loaded; the whole region if
/// the file cannot be read, was replaced, or names no sections. `base` is where the file's address 0 is loaded. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::vector<range> code_sections(const code_region& region, std::uintptr_t base);

}  // namespace pinfold::monitors::code_scan

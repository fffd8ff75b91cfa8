// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which parts of a loaded file are code. A linker may put tables and names into the same executable memory.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <vector>

namespace pinfold::monitors::code_scan {

/// The executable sections that the file of this region names, at the addresses where they are; the whole region where
/// the file cannot be read, is another, or names none. `base` is where the file's address 0 is. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::vector<range> code_sections(const code_region& region, std::uintptr_t base);

}  // namespace pinfold::monitors::code_scan

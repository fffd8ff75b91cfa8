// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the dynamic linker's own munmap, mmap and mprotect, which have no symbols, by their bytes.
#pragma once

#include "monitors/hooks/x86_64.hpp"

namespace pinfold::monitors {

struct linker_functions {
  std::uintptr_t munmap = 0;  ///< 0: not found
  std::uintptr_t mmap = 0;
  std::uintptr_t mprotect = 0;
};

/// Searches the linker's executable segment, which was loaded from `offset` in `file`. Reads the file if another
/// library's jump hides a function.
[[nodiscard]] linker_functions find_linker_functions(const x86_64::text& code, const char* file,
                                                     std::size_t offset) noexcept;

}  // namespace pinfold::monitors

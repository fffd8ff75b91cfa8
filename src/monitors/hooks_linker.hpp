// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The dynamic linker's own munmap, mmap and mprotect, which have no symbols: by their bytes.
#pragma once

#include "monitors/hooks_x86_64.hpp"

namespace pinfold::monitors {

struct linker_functions {
  std::uintptr_t munmap = 0;  ///< 0: not found
  std::uintptr_t mmap = 0;
  std::uintptr_t mprotect = 0;
};

/// In its executable segment, which was loaded from `offset` in `file`. Where somebody's jump stands in their place,
/// the file is looked into.
[[nodiscard]] linker_functions find_linker_functions(const x86_64::text& code, const char* file,
                                                     std::size_t offset) noexcept;

}  // namespace pinfold::monitors

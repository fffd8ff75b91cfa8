// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether memory is mapped at all.
#pragma once

#include "os/page_bytes.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>

namespace pinfold::os {

/// Returns whether this process has a mapping at the address. One system call; does not touch the memory.
[[nodiscard]] inline bool is_mapped(std::uintptr_t address) noexcept {
  unsigned char resident = 0;
  void* const page = reinterpret_cast<void*>(address - address % page_bytes());
  return ::mincore(page, 1, &resident) == 0 || errno != ENOMEM;
}

}  // namespace pinfold::os

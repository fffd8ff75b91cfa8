// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that a child of fork(2) finds empty.
#pragma once

#include <cstddef>
#include <sys/mman.h>

namespace pinfold::os {

/// Maps zeroed pages, as many as hold `bytes`, that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14). Returns
/// null where the kernel cannot do that, or has no memory.
[[nodiscard]] inline void* wiped_pages(std::size_t bytes) noexcept {
  void* const fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return nullptr;
  if (::madvise(fresh, bytes, MADV_WIPEONFORK) == 0) return fresh;
  ::munmap(fresh, bytes);
  return nullptr;
}

}  // namespace pinfold::os

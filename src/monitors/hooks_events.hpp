// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The functions that stand in for libc's, and post what goes away before they call the original. They allocate
/// nothing, take no lock, leave errno as the original does, and are never unloaded.
#pragma once

#include "watch/board.hpp"
#include "watch/watched_memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors::events {

/// What is hooked. Not sbrk, which calls brk; nor mmap64, which is mmap; nor mprotect and munlock, after which the
/// pages are still the same.
enum class function : std::uint8_t {
  munmap,
  mmap,
  mremap,
  madvise,
  posix_madvise,
  process_madvise,
  brk,
  shmat,
  shmdt,
  remap_file_pages,
  syscall,
  linker_munmap,  ///< the dynamic linker's own, for dlclose
  linker_mmap,
};
inline constexpr std::size_t functions = 13;

/// For each, what its callers are to run instead.
[[nodiscard]] std::array<std::uintptr_t, functions> replacements() noexcept;

/// Tells what does as the function did before; before its callers come here.
void set_original(function which, std::uintptr_t address) noexcept;

/// From now on events are posted there. Both must stay; null: pass everything through.
void post_to(watch::board* board, const watch::watched_memory* memory) noexcept;

}  // namespace pinfold::monitors::events

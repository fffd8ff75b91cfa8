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

/// What is hooked. Not mmap64, which is mmap; nor munlock, after which the pages are still the same. sbrk calls brk in
/// glibc, but other libraries put a function of their own in its place that does not (UCX). mprotect takes no memory
/// away: it tells when another library is about to change the code that ours is part of, and when it makes new code.
enum class function : std::uint8_t {
  munmap,
  mmap,
  mremap,
  madvise,
  posix_madvise,
  process_madvise,
  brk,
  sbrk,
  shmat,
  shmdt,
  remap_file_pages,
  syscall,
  mprotect,
  pkey_mprotect,
  linker_munmap,  ///< the dynamic linker's own, for dlclose
  linker_mmap,
  linker_mprotect,
};
inline constexpr std::size_t functions = 17;

/// How many jumps of ours may lead to replacements of one function: each to those of another layer, which have another
/// original to go on with.
inline constexpr std::size_t layers = 6;

/// Returns for each function what its callers are to run instead.
[[nodiscard]] std::array<std::uintptr_t, functions> replacements(std::size_t layer) noexcept;

/// Tells what does as the function did before; before its callers come here.
void set_original(std::size_t layer, function which, std::uintptr_t address) noexcept;

/// Tells where libc notes the end of the heap, which other libraries change, too. Null: nowhere.
void set_heap_end(const std::uintptr_t* known) noexcept;

/// Returns how often code has been mapped from a file, as far as hooks saw it: each time there may be another libc.
/// When it is mapped from the file `set_libc_file` named, all is posted as gone: that copy is not hooked yet.
[[nodiscard]] std::uint64_t code_mapped() noexcept;
void set_libc_file(std::uint64_t device, std::uint64_t inode) noexcept;

/// From now on events are posted there. Both must stay; null: pass everything through.
void post_to(watch::board* board, const watch::watched_memory* memory) noexcept;

}  // namespace pinfold::monitors::events

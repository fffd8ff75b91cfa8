// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The replacements of libc's functions: they post the memory that the call takes away, and then call the original.
/// They allocate nothing, wait only for a thread that changes libc's code, leave errno as the original does, and are
/// never unloaded.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"
#include "monitors/hooks/code_lock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors::events {

/// The hooked functions. Not mmap64, which is mmap, nor munlock, which leaves the pages the same. sbrk calls brk in
/// glibc, but other libraries (UCX) replace it by a function that does not. mprotect takes no memory away: its hook
/// reports when another library is about to change the code that contains our jumps, and when a library makes new code.
/// The last is hooked first, and the common ones are first because they share a cache line.
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
  linker_munmap,  ///< the dynamic linker's own, for dlclose
  linker_mmap,
  linker_mprotect,
  syscall,
  pkey_mprotect,
  mprotect,
};
inline constexpr std::size_t functions = 17;

/// The number of our jumps that may lead to replacements of one function. Each leads to the replacements of another
/// layer, which continue with another original.
inline constexpr std::size_t layers = 6;

[[nodiscard]] std::array<std::uintptr_t, functions> replacements(std::size_t layer) noexcept;

/// Sets the code that continues with the original function. Called before any caller can reach the replacement.
void set_original(std::size_t layer, function which, std::uintptr_t address) noexcept;

/// Sets where libc stores the end of the heap, which other libraries change, too. Null: unknown.
void set_heap_end(const std::uintptr_t* known) noexcept;

/// Returns how often the hooks saw code mapped from a file, which may be another libc. When the file of `set_libc_file`
/// is mapped, the hook posts everything, because that copy is not hooked yet.
[[nodiscard]] std::uint64_t code_mapped() noexcept;
void set_libc_file(std::uint64_t device, std::uint64_t inode) noexcept;

/// Calls that change the protection of guarded code hold this lock from now on. It must stay valid.
void set_code_lock(code_lock* lock) noexcept;

/// From now on sends events to `event_log`. Both arguments must stay valid; null: passes every call through.
void post_to(invalidation::event_log* event_log, const invalidation::registered_filter* memory) noexcept;

}  // namespace pinfold::monitors::events

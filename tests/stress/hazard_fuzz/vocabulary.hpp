// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The parts that the fuzzer combines: events, mechanisms, kinds of memory. Reports and the filter use their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::testing::hazard_fuzz {

/// An event of memory.
enum class memory_event : std::uint8_t {
  unmap,
  map_over,
  move_away,
  move_away_keep,  ///< MREMAP_DONTUNMAP
  move_onto,
  shrink,
  dontneed,
  dontneed_locked,
  free_lazily,
  remove,
  guard,
  attach_over,
  detach,
  remap_file,
  punch,
  truncate,
  protect,
  pageout,
  rename,  ///< PR_SET_VMA_ANON_NAME
};
inline constexpr std::array event_names{
    "unmap",           "map_over",    "move_away", "move_away_keep", "move_onto",   "shrink", "dontneed",
    "dontneed_locked", "free_lazily", "remove",    "guard",          "attach_over", "detach", "remap_file",
    "punch",           "truncate",    "protect",   "pageout",        "rename",
};

/// How an event enters the kernel.
enum class mechanism : std::uint8_t {
  libc,
  syscall_function,
  inline_syscall,
  io_uring,
  process_madvise,
  process_madvise_inline,
  vfork_libc,
  vfork_inline,
  other_process,
};
inline constexpr std::array mechanism_names{
    "libc",       "syscall_function", "inline_syscall", "io_uring", "process_madvise", "process_madvise_inline",
    "vfork_libc", "vfork_inline",     "other_process",
};

enum class memory_kind : std::uint8_t {
  anonymous,
  transparent_huge,
  hugetlb,
  locked,
  shared_anonymous,
  shared_memfd,
  private_memfd,
  sealed_memfd,
  system_v,
  private_tmpfs,
  private_disk,
};
inline constexpr std::array kind_names{
    "anonymous",     "transparent_huge", "hugetlb",  "locked",        "shared_anonymous", "shared_memfd",
    "private_memfd", "sealed_memfd",     "system_v", "private_tmpfs", "private_disk",
};

inline constexpr std::size_t event_count = event_names.size();
inline constexpr std::size_t mechanism_count = mechanism_names.size();
inline constexpr std::size_t kind_count = kind_names.size();

inline const char* name_of(memory_event what) { return event_names.at(static_cast<std::size_t>(what)); }
inline const char* name_of(mechanism via) { return mechanism_names.at(static_cast<std::size_t>(via)); }
inline const char* name_of(memory_kind of) { return kind_names.at(static_cast<std::size_t>(of)); }

/// Returns whether the memory is a file or a segment, which another process can have, too.
inline bool is_shared_with_others(memory_kind of) {
  return of >= memory_kind::shared_anonymous && of != memory_kind::sealed_memfd;
}

/// Returns whether pages taken from the mapping stay the file's, and come back unchanged.
inline bool pages_are_the_files(memory_kind of) {
  return of == memory_kind::shared_anonymous || of == memory_kind::shared_memfd || of == memory_kind::sealed_memfd ||
         of == memory_kind::system_v;
}

}  // namespace pinfold::testing::hazard_fuzz

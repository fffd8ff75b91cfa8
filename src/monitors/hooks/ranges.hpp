// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Computes the memory that a call takes away from its arguments alone; an empty range for none. Never less than the
/// kernel takes, and more if the extent cannot be known before the call.
#pragma once

#include "os/check.hpp"

#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <sys/shm.h>

namespace pinfold::monitors::ranges {

inline constexpr std::uintptr_t page = 4096;  // the only page size of x86-64

[[nodiscard]] constexpr std::uintptr_t up(std::uintptr_t at, std::uintptr_t size = page) noexcept {
  PINFOLD_ASSERT(size != 0 && (size & (size - 1)) == 0, "sizes of pages are powers of two");
  return at > UINTPTR_MAX - size ? UINTPTR_MAX : (at + size - 1) & ~(size - 1);
}

/// Returns the pages of an address and a length, as the kernel rounds them.
[[nodiscard]] constexpr range pages(std::uintptr_t at, std::size_t bytes) noexcept {
  const auto begin = at & ~(page - 1);
  if (bytes == 0) return {begin, begin};
  return {begin, bytes > UINTPTR_MAX - at ? UINTPTR_MAX : up(at + bytes)};
}

/// Returns the pages for calls that round a length up to the mapping's own huge page, whose size is unknown here. Such
/// a mapping begins at a multiple of its page.
[[nodiscard]] constexpr range pages_of_any_size(std::uintptr_t at, std::size_t bytes) noexcept {
  constexpr std::array<std::uintptr_t, 2> huge{std::uintptr_t{1} << 21U, std::uintptr_t{1} << 30U};
  range whole = pages(at, bytes);
  for (const auto size : huge)
    if ((at & (size - 1)) == 0 && !whole.empty()) whole.end = up(whole.end, size);
  return whole;
}

/// Returns whether the process still sees the same registered pages after this advice.
[[nodiscard]] constexpr bool harmless(int advice) noexcept {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:    // read-ahead only
    case MADV_HUGEPAGE:    // khugepaged leaves pinned pages alone later,
    case MADV_NOHUGEPAGE:  //
    case 25:               // MADV_COLLAPSE: so does this (EAGAIN)
    case MADV_DONTFORK:    // these are about children and
    case MADV_DOFORK:      //
    case MADV_WIPEONFORK:  //
    case MADV_KEEPONFORK:  //
    case MADV_DONTDUMP:    // core files
    case MADV_DODUMP:      //
    case MADV_COLD:        // a pinned page is not reclaimed:
    case MADV_PAGEOUT:     // its registration stays fresh
    case 22:               // MADV_POPULATE_READ: adds pages where there are none
    case 23:               // MADV_POPULATE_WRITE: as a write does
      return true;
    // Not: DONTNEED, DONTNEED_LOCKED, FREE, REMOVE, HWPOISON, SOFT_OFFLINE, GUARD_INSTALL, GUARD_REMOVE; MERGEABLE and
    // UNMERGEABLE, because the effect of UNMERGEABLE on a merged page is not known; future advice.
    default: return false;
  }
}

[[nodiscard]] constexpr range madvise(std::uintptr_t at, std::size_t bytes, int advice) noexcept {
  return harmless(advice) ? range{} : pages(at, bytes);
}

/// glibc ignores POSIX_MADV_DONTNEED, and passes any other number to the kernel.
[[nodiscard]] constexpr range posix_madvise(std::uintptr_t at, std::size_t bytes, int advice) noexcept {
  return advice == POSIX_MADV_DONTNEED ? range{} : madvise(at, bytes, advice);
}

/// Only MAP_FIXED maps over existing mappings; with MAP_FIXED_NOREPLACE it does not.
[[nodiscard]] constexpr range mmap(std::uintptr_t at, std::size_t bytes, int flags) noexcept {
  constexpr int fixed_noreplace = 0x100000;
  if ((flags & MAP_FIXED) == 0 || (flags & fixed_noreplace) != 0) return {};
  const bool huge = (flags & MAP_HUGETLB) != 0 || (flags & MAP_ANONYMOUS) == 0;
  return huge ? pages_of_any_size(at, bytes) : pages(at, bytes);
}

/// Returns the memory that moves: all of it if it may move, else the tail that is cut off.
[[nodiscard]] constexpr range mremap_from(std::uintptr_t at, std::size_t old_bytes, std::size_t bytes,
                                          int flags) noexcept {
  constexpr int dontunmap = 4;
  const range before = pages_of_any_size(at, old_bytes);
  if ((flags & (MREMAP_FIXED | dontunmap)) != 0) return before;
  const auto old_end = pages(at, old_bytes).end;
  const auto end = pages(at, bytes).end;
  if (end > old_end) return (flags & MREMAP_MAYMOVE) != 0 ? before : range{};
  return end < old_end && bytes != 0 ? range{end, before.end} : range{};
}

/// Returns the memory that the moved mapping replaces.
[[nodiscard]] constexpr range mremap_onto(std::uintptr_t at, std::size_t bytes, int flags) noexcept {
  return (flags & MREMAP_FIXED) != 0 ? pages_of_any_size(at, bytes) : range{};
}

/// Returns the memory between the new end of the heap and the present one.
[[nodiscard]] constexpr range brk(std::uintptr_t end, std::uintptr_t present) noexcept {
  if (end == 0 || end >= present) return {};  // brk(0) returns the present end
  return {up(end), up(present)};
}

}  // namespace pinfold::monitors::ranges

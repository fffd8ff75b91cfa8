// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What memory a call takes away from who has it, by its arguments alone: an empty range for none. Never less than the
/// kernel takes; more where it cannot be known before.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <sys/shm.h>

namespace pinfold::monitors::ranges {

inline constexpr std::uintptr_t page = 4096;  // x86-64 has no other

[[nodiscard]] constexpr std::uintptr_t up(std::uintptr_t at, std::uintptr_t size = page) noexcept {
  return at > UINTPTR_MAX - size ? UINTPTR_MAX : (at + size - 1) & ~(size - 1);
}

/// As the kernel sees an address and a length: whole pages.
[[nodiscard]] constexpr range pages(std::uintptr_t at, std::size_t bytes) noexcept {
  const auto begin = at & ~(page - 1);
  if (bytes == 0) return {begin, begin};
  return {begin, bytes > UINTPTR_MAX - at ? UINTPTR_MAX : up(at + bytes)};
}

/// For the calls that round a length up to the mapping's own huge page, which is not known here. Such a mapping begins
/// at a multiple of its page.
[[nodiscard]] constexpr range pages_of_any_size(std::uintptr_t at, std::size_t bytes) noexcept {
  constexpr std::array<std::uintptr_t, 2> huge{std::uintptr_t{1} << 21U, std::uintptr_t{1} << 30U};
  range whole = pages(at, bytes);
  for (const auto size : huge)
    if ((at & (size - 1)) == 0 && !whole.empty()) whole.end = up(whole.end, size);
  return whole;
}

/// Advice after which registered pages are still the ones that the process sees.
[[nodiscard]] constexpr bool harmless(int advice) noexcept {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:    // read-ahead only
    case MADV_HUGEPAGE:    // what khugepaged may do later it does not do to pinned pages,
    case MADV_NOHUGEPAGE:  //
    case 25:               // MADV_COLLAPSE: nor does this, EAGAIN
    case MADV_DONTFORK:    // these are about children and
    case MADV_DOFORK:      //
    case MADV_WIPEONFORK:  //
    case MADV_KEEPONFORK:  //
    case MADV_DONTDUMP:    // core files
    case MADV_DODUMP:      //
    case MADV_COLD:        // a pinned page is not reclaimed:
    case MADV_PAGEOUT:     // found fresh after it
    case 22:               // MADV_POPULATE_READ: makes pages where there are none
    case 23:               // MADV_POPULATE_WRITE: as a write does
      return true;
    // Not: DONTNEED, DONTNEED_LOCKED, FREE, REMOVE, HWPOISON, SOFT_OFFLINE, GUARD_INSTALL, GUARD_REMOVE; MERGEABLE and
    // UNMERGEABLE, as nobody has shown what the latter does to a page that was merged; what comes in future.
    default: return false;
  }
}

[[nodiscard]] constexpr range madvise(std::uintptr_t at, std::size_t bytes, int advice) noexcept {
  return harmless(advice) ? range{} : pages(at, bytes);
}

/// glibc does nothing for POSIX_MADV_DONTNEED, and gives any other number to the kernel.
[[nodiscard]] constexpr range posix_madvise(std::uintptr_t at, std::size_t bytes, int advice) noexcept {
  return advice == POSIX_MADV_DONTNEED ? range{} : madvise(at, bytes, advice);
}

/// Only MAP_FIXED maps over what there is. With MAP_FIXED_NOREPLACE it does not.
[[nodiscard]] constexpr range mmap(std::uintptr_t at, std::size_t bytes, int flags) noexcept {
  constexpr int fixed_noreplace = 0x100000;
  if ((flags & MAP_FIXED) == 0 || (flags & fixed_noreplace) != 0) return {};
  const bool huge = (flags & MAP_HUGETLB) != 0 || (flags & MAP_ANONYMOUS) == 0;
  return huge ? pages_of_any_size(at, bytes) : pages(at, bytes);
}

/// The memory that leaves its place: all that may move, else the tail that is cut off.
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

/// The memory that is replaced by what comes.
[[nodiscard]] constexpr range mremap_onto(std::uintptr_t at, std::size_t bytes, int flags) noexcept {
  return (flags & MREMAP_FIXED) != 0 ? pages_of_any_size(at, bytes) : range{};
}

/// What lies between the new end of the heap and the present one.
[[nodiscard]] constexpr range brk(std::uintptr_t end, std::uintptr_t present) noexcept {
  if (end == 0 || end >= present) return {};  // brk(0) asks where it is
  return {up(end), up(present)};
}

}  // namespace pinfold::monitors::ranges

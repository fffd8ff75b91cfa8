// SPDX-License-Identifier: BSD-3-Clause
#include "pools/pages.hpp"

#include "os/check.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pinfold::pools {

namespace {

// PAGEMAP_SCAN of Linux 6.7 (include/uapi/linux/fs.h), which older headers lack.
struct page_region {
  std::uint64_t start, end, categories;
};
struct pagemap_scan {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
constexpr unsigned long pagemap_scan_request = _IOWR('f', 16, pagemap_scan);
constexpr std::uint64_t page_is_huge = 1U << 6U;

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

void* at(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

// Returns 1 if all of it lies in huge pages, 0 if not, and -1 if the kernel cannot tell.
int all_huge(const range& memory) noexcept {
  const detail::no_cancellation whole;
  const os::file map(::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!map) return -1;
  page_region found{};
  pagemap_scan scan{};
  scan.size = sizeof scan;
  scan.start = memory.begin;
  scan.end = memory.end;
  scan.vec = reinterpret_cast<std::uintptr_t>(&found);
  scan.vec_len = 1;
  scan.category_mask = scan.return_mask = page_is_huge;
  const int regions = ::ioctl(map.number(), pagemap_scan_request, &scan);
  if (regions < 0) return -1;
  return regions == 1 && found.start == memory.begin && found.end == memory.end ? 1 : 0;
}

}  // namespace

std::size_t small_page() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t bytes_as(std::size_t bytes, page_kind kind) noexcept {
  return rounded(bytes, kind == page_kind::plain ? small_page() : huge_page);
}

void unmap(const range& memory) noexcept { ::munmap(at(memory.begin), memory.size()); }

result<range> reserve(std::size_t bytes, int protection) noexcept {
  const std::size_t alignment = std::clamp(std::bit_floor(bytes), small_page(), huge_page);
  const std::size_t more = bytes + alignment - small_page();
  void* const got = ::mmap(nullptr, more, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return fail_errno(errc::out_of_resources, errno, "no memory for a slab");
  const auto first = reinterpret_cast<std::uintptr_t>(got);
  const range place{rounded(first, alignment), rounded(first, alignment) + bytes};
  if (place.begin > first) unmap({first, place.begin});
  if (place.end < first + more) unmap({place.end, first + more});
  return place;
}

result<range> mapper::obtain(std::size_t bytes, page_kind kind) noexcept {
  constexpr int readable_writable = PROT_READ | PROT_WRITE;
  if (kind != page_kind::hugetlb) return reserve(bytes, readable_writable);
  // Not over a reservation: a failed mmap could still remove the reservation.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB;
  void* const got = ::mmap(nullptr, bytes, readable_writable, flags, -1, 0);
  if (got == MAP_FAILED) return fail_errno(errc::out_of_resources, errno, "too few free huge pages (vm.nr_hugepages)");
  return range{reinterpret_cast<std::uintptr_t>(got), reinterpret_cast<std::uintptr_t>(got) + bytes};
}

// Populates all pages now: the caller relies on their kind, and a later write must not find hugetlbfs empty.
result<void> mapper::fill(mapping& made) noexcept {
  void* const memory = at(made.memory.begin);
  const std::size_t bytes = made.memory.size();
  // Fails where the kernel has no huge pages, which is fine.
  if (made.pages == page_kind::plain) static_cast<void>(::madvise(memory, bytes, MADV_NOHUGEPAGE));
  if (made.pages == page_kind::thp && ::madvise(memory, bytes, MADV_HUGEPAGE) != 0)
    return fail_errno(errc::unsupported, errno, "the kernel has no transparent huge pages");
  // EINVAL: before Linux 5.14. The registrar will fault in the pages.
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    return fail_errno(errc::out_of_resources, errno, "no memory for the pages of a slab");
  if (made.pages != page_kind::thp) return {};
  const int huge = all_huge(made.memory);
  if (huge == 0)
    return fail(errc::unsupported, "the kernel provided no transparent huge pages, or only for part of the slab");
  if (huge < 0) made.reason = "requested; a kernel before Linux 6.7 cannot confirm that it provided them";
  return {};
}

result<mapping> mapper::attempt(page_kind kind) noexcept {
  PINFOLD_ASSERT(kind != page_kind::best, "an attempt is for one kind of pages");
  if (kind != page_kind::plain && bytes_ < huge_page)
    return fail(errc::unsupported, "the slab is smaller than a huge page");
  const auto place = obtain(bytes_as(bytes_, kind), kind);
  if (!place) return tl::unexpected(place.error());
  mapping made{.memory = *place, .pages = kind};
  auto done = fill(made);
  if (done) done = finish(*place);
  if (done) return made;
  unmap(*place);
  return tl::unexpected(done.error());
}

result<mapping> mapper::map(page_kind wanted) noexcept {
  if (wanted != page_kind::best) return attempt(wanted);
  error why{};
  for (const auto kind : {page_kind::hugetlb, page_kind::thp, page_kind::plain}) {
    auto made = attempt(kind);
    if (made && why.message[0] != '\0') made->reason = why.message, made->native = why.native;
    if (made || kind == page_kind::plain) return made;
    why = made.error();
  }
  return tl::unexpected(why);
}

}  // namespace pinfold::pools

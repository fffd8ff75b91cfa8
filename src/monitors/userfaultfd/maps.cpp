// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/maps.hpp"

#include "os/check.hpp"
#include "os/page_bytes.hpp"
#include "os/procmap_query.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors::uffd {

namespace {

constexpr std::uint64_t or_next = 0x10;

int ask(int maps, std::uintptr_t address, std::uint64_t flags, range& found) noexcept {
  os::procmap_query query{};
  query.size = sizeof query;
  query.query_flags = flags;
  query.query_addr = address;
  if (::syscall(SYS_ioctl, maps, os::procmap_query_request, &query) != 0) return errno;
  found = {static_cast<std::uintptr_t>(query.vma_start), static_cast<std::uintptr_t>(query.vma_end)};
  return 0;
}

// PAGEMAP_SCAN of Linux 6.7, which older headers lack.
struct pagemap_scan {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t vec;
  std::uint64_t vec_len;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
constexpr unsigned long scan_request = _IOWR('f', 16, pagemap_scan);
constexpr std::uint64_t check_wpasync = 2;
constexpr std::uint64_t present = 1U << 3U;

// Returns whether the page may be watched, by this or another userfaultfd, in the mode that this one uses. Also true if
// the page map cannot be read, as in a process that gave up its privileges.
bool may_be_watched(int pagemap, std::uintptr_t address) noexcept {
  if (pagemap < 0) return true;
  std::array<std::uint64_t, 3> page{};
  pagemap_scan query{};
  query.size = sizeof query;
  query.flags = check_wpasync;
  query.start = address;
  query.end = address + os::page_bytes();
  query.vec = reinterpret_cast<std::uintptr_t>(page.data());
  query.vec_len = 1;
  query.category_mask = present;
  query.return_mask = present;
  return ::syscall(SYS_ioctl, pagemap, scan_request, &query) >= 0;
}

}  // namespace

descriptor open_maps() noexcept { return descriptor::of(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC)); }

mappings mappings_under(const descriptor& maps, const range& pages) noexcept {
  PINFOLD_ASSERT(pages.begin < pages.end, "there are pages to look for");
  mappings all{.known = true, .whole = true, .all = pages};
  for (auto at = pages.begin; at < pages.end;) {
    range found;
    const int native = ask(maps.number, at, 0, found);
    if (native != 0) return {.known = native == ENOENT, .whole = false, .all = pages};
    all.all = {std::min(all.all.begin, found.begin), std::max(all.all.end, found.end)};
    at = found.end;
  }
  return all;
}

// msync changes nothing for private memory. It marks shared memory for a later write-back, which happens in any case.
bool is_mapped(const range& pages) noexcept {
  return ::msync(reinterpret_cast<void*>(pages.begin), pages.size(), MS_ASYNC) == 0;
}

// Watches each mapping first: that changes nothing if this userfaultfd watches it already, and fails if another one
// does, which until Linux 6.15 `stop_watching` would stop.
bool stop_watching_next(int uffd, const own_memory& here, const range& but, std::uintptr_t& at) noexcept {
  range found;
  if (ask(here.maps, at, or_next, found) != 0) return false;
  PINFOLD_ASSERT(found.end > at, "the walk goes on");
  at = found.end;
  if (found.contains(but) || !may_be_watched(here.pagemap, found.begin)) return true;
  if (start_watching(uffd, found) == 0) static_cast<void>(stop_watching(uffd, found));
  return true;
}

void stop_watching_all(int uffd, const descriptor& maps, const range& but) noexcept {
  descriptor pagemap = descriptor::of(::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  for (std::uintptr_t at = 0; stop_watching_next(uffd, {maps.number, pagemap.number}, but, at);) {
  }
  pagemap.close();
}

}  // namespace pinfold::monitors::uffd

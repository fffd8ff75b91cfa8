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

own_memory open_own_memory() noexcept {
  const auto opened = [](const char* path) {
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  };
  return {.maps = opened("/proc/thread-self/maps"), .pagemap = opened("/proc/thread-self/pagemap")};
}

range mapping_list::next() noexcept {
  range found;
  if (!as_text_) {
    const int native = ask(maps_, at_, os::procmap_or_next, found);
    complete_ = native == ENOENT;
    as_text_ = native != 0 && native != ENOENT;
  }
  if (as_text_) found = next_as_text();
  PINFOLD_ASSERT(found.empty() || as_text_ || found.end > at_, "the walk goes on");
  at_ = found.end;
  return found;
}

// A line: address-address permissions offset device inode path
range mapping_list::next_as_text() noexcept {
  const auto begin = address_before('-');
  const auto end = address_before(' ');
  for (int one = next_character(); one >= 0 && one != '\n';) one = next_character();
  return {begin, end};
}

std::uintptr_t mapping_list::address_before(char end) noexcept {
  std::uintptr_t value = 0;
  for (int digit = next_character(); digit >= 0 && digit != end; digit = next_character())
    value = value << 4U | static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  return value;
}

// Returns a negative value behind the last one.
int mapping_list::next_character() noexcept {
  if (used_ == held_) {
    const auto got = ::syscall(SYS_read, maps_, text_.data(), text_.size());
    complete_ = got == 0;
    used_ = 0;
    held_ = got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return used_ < held_ ? text_[used_++] : -1;
}

// Watches the mapping first: that changes nothing if this userfaultfd watches it already, and fails if another one
// does, which until Linux 6.15 `stop_watching` would stop.
void stop_watching_mapping(int uffd, int pagemap, const range& mapping) noexcept {
  if (!may_be_watched(pagemap, mapping.begin)) return;
  if (start_watching(uffd, mapping) == 0) static_cast<void>(stop_watching(uffd, mapping));
}

}  // namespace pinfold::monitors::uffd

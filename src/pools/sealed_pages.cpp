// SPDX-License-Identifier: BSD-3-Clause
#include "pools/sealed_pages.hpp"

#include "os/check.hpp"
#include "os/file.hpp"
#include "os/size_limit.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace pinfold::pools {

namespace {

#ifndef SYS_mseal
constexpr long SYS_mseal = 462;  // Linux 6.10, the same number on all architectures
#endif
#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // Linux 5.1
#endif

long mseal(std::uintptr_t begin, std::size_t bytes) noexcept { return ::syscall(SYS_mseal, begin, bytes, 0UL); }

}  // namespace

void sealed_mapper::close_file() noexcept {
  if (file_ >= 0) os::close_number(std::exchange(file_, -1));
}

result<range> sealed_mapper::obtain(std::size_t bytes, page_kind kind) noexcept {
  if (mseal(0, 0) != 0) return fail_errno(errc::unsupported, errno, "sealed memory needs mseal(2) of Linux 6.10");
  close_file();
  const unsigned huge = kind == page_kind::hugetlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0U;
  file_ = os::above_standard(::memfd_create("pinfold-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge));
  if (file_ < 0) return fail_errno(errc::out_of_resources, errno, "cannot create a memfd for a slab");
  if (os::within_size_limit([&] { return ::ftruncate(file_, static_cast<off_t>(bytes)); }) != 0)
    return fail_errno(errc::out_of_resources, errno, "cannot set the size of a slab's memfd");
  return map_file(bytes, kind);
}

result<range> sealed_mapper::map_file(std::size_t bytes, page_kind kind) const noexcept {
  PINFOLD_ASSERT(file_ >= 0, "the file to be mapped is open");
  void* place = nullptr;
  if (kind != page_kind::hugetlb) {  // hugetlbfs finds an aligned place by itself
    const auto reserved = reserve(bytes, PROT_NONE);
    if (!reserved) return reserved;
    place = reinterpret_cast<void*>(reserved->begin);
  }
  const int flags = MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED);
  void* const got = ::mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file_, 0);
  // If this fails, the reservation may be gone, and its addresses may belong to another mapping: leave them alone.
  if (got == MAP_FAILED) return fail_errno(errc::out_of_resources, errno, "cannot map a memfd for a slab");
  return range{reinterpret_cast<std::uintptr_t>(got), reinterpret_cast<std::uintptr_t>(got) + bytes};
}

// Hides the memory from children, which would see, and change, the parent's data through the shared mapping.
result<void> sealed_mapper::finish(const range& memory) noexcept {
  if (::madvise(reinterpret_cast<void*>(memory.begin), memory.size(), MADV_DONTFORK) != 0)
    return fail_errno(errc::unsupported, errno, "cannot exclude sealed memory from child processes");
  if (::fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return fail_errno(errc::unsupported, errno, "cannot seal the memfd of a slab");
  if (mseal(memory.begin, memory.size()) != 0)
    return fail_errno(errc::unsupported, errno, "cannot seal the mapping of a slab");
  return {};
}

}  // namespace pinfold::pools

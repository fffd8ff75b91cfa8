// SPDX-License-Identifier: BSD-3-Clause
#include "perf/startup/mapped_range.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"

#include <cerrno>
#include <cstdint>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <utility>

namespace tool {
namespace {

constexpr std::size_t alignment = std::size_t{1} << 30U;  // so that pieces begin where huge pages do

void* at(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

}  // namespace

mapped_range::mapped_range(std::size_t bytes, int protection) {
  void* const got = ::mmap(nullptr, bytes + alignment, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    throw failure(fmt::format("cannot map {}: {}", size_text(bytes), std::generic_category().message(errno)));
  const auto begin = reinterpret_cast<std::uintptr_t>(got);
  const auto first = (begin + alignment - 1) / alignment * alignment;
  whole_ = {begin, begin + bytes + alignment};
  where_ = {first, first + bytes};
}

mapped_range::mapped_range(mapped_range&& other) noexcept
    : whole_(std::exchange(other.whole_, {})), where_(other.where_) {}

mapped_range::~mapped_range() {
  if (!whole_.empty()) ::munmap(at(whole_.begin), whole_.size());
}

mapped_range mapped_range::reserve(std::size_t bytes) { return {bytes, PROT_NONE}; }

mapped_range mapped_range::map(std::size_t bytes, bool huge) {
  mapped_range made(bytes, PROT_READ | PROT_WRITE);
  // Fails where the kernel has no huge pages, so that there are none to be had or to be kept away.
  static_cast<void>(::madvise(at(made.where_.begin), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
  return made;
}

}  // namespace tool

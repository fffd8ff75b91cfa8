// SPDX-License-Identifier: BSD-3-Clause
#include "own_maps.hpp"

#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sys/ioctl.h>

namespace pinfold::detail {

namespace {

// PROCMAP_QUERY of Linux 6.11 (proc_pid_maps(5), include/uapi/linux/fs.h), which older headers lack.
struct procmap_query {
  std::uint64_t size;
  std::uint64_t query_flags;
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
constexpr unsigned long procmap_query_request = _IOWR('f', 17, procmap_query);

using found_mapping = std::optional<procmap_query>;

// The mapping under an address. Before Linux 6.11 there is no answer.
found_mapping mapping_at(const own_maps& maps, std::uintptr_t address) noexcept {
  procmap_query asked{};
  asked.size = sizeof asked;
  asked.query_addr = address;
  return ::ioctl(maps.descriptor(), procmap_query_request, &asked) == 0 ? found_mapping(asked) : std::nullopt;
}

std::size_t larger_page(std::size_t granularity, const found_mapping& found) noexcept {
  return found ? std::max<std::size_t>(granularity, found->vma_page_size) : granularity;
}

}  // namespace

range rounded_out(const range& exact, std::size_t granularity) noexcept {
  if (granularity <= 1) return exact;
  const own_maps maps;
  const auto first = mapping_at(maps, exact.begin);
  const auto last = first && exact.end <= first->vma_end ? first : mapping_at(maps, exact.end - 1);
  return {aligned_out(exact, larger_page(granularity, first)).begin,
          aligned_out(exact, larger_page(granularity, last)).end};
}

bool same_mapping(std::uintptr_t a, std::uintptr_t b) noexcept {
  const auto found = mapping_at(own_maps(), a);
  return found && found->vma_start <= b && b < found->vma_end;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <cstdint>
#include <fcntl.h>
#include <optional>
#include <sys/ioctl.h>
#include <unistd.h>

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

// The mapping under an address. Before Linux 6.11 there is no answer.
std::optional<procmap_query> mapping_at(std::uintptr_t address) noexcept {
  // Opened for each query: a descriptor kept over a fork would tell of the parent's mappings.
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return std::nullopt;
  procmap_query asked{};
  asked.size = sizeof asked;
  asked.query_addr = address;
  const bool answered = ::ioctl(maps, procmap_query_request, &asked) == 0;
  ::close(maps);
  return answered ? std::optional(asked) : std::nullopt;
}

std::size_t page_at(std::uintptr_t address) noexcept {
  const auto found = mapping_at(address);
  return found ? found->vma_page_size : 1;
}

}  // namespace

range rounded_out(const range& exact, std::size_t granularity) noexcept {
  if (granularity <= 1) return exact;
  const auto first = std::max(granularity, page_at(exact.begin));
  const auto last = std::max(granularity, page_at(exact.end - 1));
  return {aligned_out(exact, first).begin, aligned_out(exact, last).end};
}

bool same_mapping(std::uintptr_t a, std::uintptr_t b) noexcept {
  const auto found = mapping_at(a);
  return found && found->vma_start <= b && b < found->vma_end;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
#include "procmap.hpp"

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
constexpr std::uint64_t vma_shared = 8;

}  // namespace

std::optional<procmap> mapping_at(const own_maps& maps, std::uintptr_t address, std::span<char> path) noexcept {
  procmap_query asked{};
  asked.size = sizeof asked;
  asked.query_addr = address;
  asked.vma_name_addr = path.empty() ? 0 : reinterpret_cast<std::uintptr_t>(path.data());
  asked.vma_name_size = static_cast<std::uint32_t>(path.size());
  if (!path.empty()) path[0] = '\0';
  if (::ioctl(maps.descriptor(), procmap_query_request, &asked) != 0) return std::nullopt;
  return procmap{asked.vma_start,
                 asked.vma_end,
                 asked.vma_page_size,
                 asked.inode,
                 asked.dev_major,
                 asked.dev_minor,
                 (asked.vma_flags & vma_shared) != 0};
}

}  // namespace pinfold::detail

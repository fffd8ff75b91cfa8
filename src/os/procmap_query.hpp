// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// PROCMAP_QUERY of Linux 6.11 (proc_pid_maps(5), include/uapi/linux/fs.h), which older headers lack.
#pragma once

#include <cstdint>
#include <sys/ioctl.h>

namespace pinfold::os {

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
inline constexpr unsigned long procmap_query_request = _IOWR('f', 17, procmap_query);
inline constexpr std::uint64_t procmap_or_next = 0x10;  ///< flag: the mapping at the address, or the next one

}  // namespace pinfold::os

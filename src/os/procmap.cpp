// SPDX-License-Identifier: BSD-3-Clause
#include "os/procmap.hpp"

#include "os/procmap_query.hpp"

#include <sys/ioctl.h>

namespace pinfold::detail {

namespace {

constexpr std::uint64_t vma_shared = 8;

std::optional<procmap> ask(const own_maps& maps, std::uintptr_t address, std::uint64_t flags,
                           std::span<char> path) noexcept {
  os::procmap_query query{};
  query.size = sizeof query;
  query.query_flags = flags;
  query.query_addr = address;
  query.vma_name_addr = path.empty() ? 0 : reinterpret_cast<std::uintptr_t>(path.data());
  query.vma_name_size = static_cast<std::uint32_t>(path.size());
  if (!path.empty()) path[0] = '\0';
  if (::ioctl(maps.descriptor(), os::procmap_query_request, &query) != 0) return std::nullopt;
  return procmap{query.vma_start,
                 query.vma_end,
                 query.vma_page_size,
                 query.inode,
                 query.dev_major,
                 query.dev_minor,
                 (query.vma_flags & vma_shared) != 0};
}

}  // namespace

std::optional<procmap> mapping_at(const own_maps& maps, std::uintptr_t address, std::span<char> path) noexcept {
  return ask(maps, address, 0, path);
}

std::optional<procmap> mapping_from(const own_maps& maps, std::uintptr_t address) noexcept {
  return ask(maps, address, os::procmap_or_next, {});
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memfd handles that no exporter would make, of files in this process.
#pragma once

#include "fd_passing/process.hpp"
#include "importers/memfd/handle.hpp"
#include "importers/memfd/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::testing {

/// A memfd of `bytes` zeros with these seals.
inline os::file sealed_file(std::size_t bytes, int seals) {
  os::file made = memfd::new_memfd();
  if (::ftruncate(made.number(), static_cast<off_t>(bytes)) != 0) return os::file();
  if (seals != 0 && ::fcntl(made.number(), F_ADD_SEALS, seals) != 0) return os::file();
  return made;
}

/// A handle that is right in everything that the caller does not change; `memfd::completed` makes it valid again.
inline memfd_handle handle_of(const os::file& file, std::size_t bytes, memfd_access access = memfd_access::read_only) {
  struct stat seen{};
  if (::fstat(file.number(), &seen) != 0) return {};
  return memfd::completed({.magic = 0,
                           .exporter = 0x1234'5678'9abc'def0,
                           .serial = 1,
                           .base = 0x7000'0000'0000,
                           .size = bytes,
                           .inode = seen.st_ino,
                           .start_time = fd_passing::start_time_of(::getpid()).value(),
                           .pid = ::getpid(),
                           .descriptor = file.number(),
                           .access = static_cast<std::uint16_t>(access),
                           .check = 0});
}

inline constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

}  // namespace pinfold::testing

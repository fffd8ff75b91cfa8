// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The part of an exporter that its buffers and segments need.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "fd_passing/host.hpp"
#include "fd_passing/server.hpp"
#include "importers/memfd/memory.hpp"
#include "importers/memfd/served.hpp"
#include "release/server.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace pinfold {

namespace memfd {
inline constexpr auto no_memory = "no memory for the exporter's own records";
}

struct memfd_exporter::state {
  memfd_exporter_options options;
  fd_passing::exporter_id id{};
  std::shared_ptr<memfd::served_table> buffers;
  std::unique_ptr<fd_passing::server> service;
  release::server_owner releases;  ///< null without `release`
  std::atomic<std::uint64_t> last_serial{0};

  [[nodiscard]] memfd_handle next_handle(const memfd::exported_memory& memory) noexcept {
    return memfd::completed({.magic = memfd::handle_magic,
                             .exporter = id.exporter,
                             .serial = last_serial.fetch_add(1, std::memory_order_relaxed) + 1,
                             .base = reinterpret_cast<std::uintptr_t>(memory.data()),
                             .size = memory.size(),
                             .inode = memory.inode(),
                             .start_time = id.start_time,
                             .pid = id.pid,
                             .descriptor = memory.descriptor(),
                             .access = static_cast<std::uint16_t>(options.access),
                             .host = static_cast<std::uint16_t>(fd_passing::this_host()),
                             .check = 0});
  }
};

}  // namespace pinfold

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes and checks memfd handles.
///
/// The checksum detects damage, such as bytes lost in transit or a handle of another kind. It does not protect against
/// attackers: when the descriptor is fetched, the kernel decides whether a process may open a buffer.
#pragma once

#include <pinfold/importers/memfd.hpp>

#include "fd_passing/checksum.hpp"
#include "fd_passing/exporter_id.hpp"

#include <cstdint>

namespace pinfold::memfd {

/// The letters PFMEMFD and the version of the layout. Version 1 lacked the number of the host.
inline constexpr std::uint64_t handle_magic = 0x5046'4d45'4d46'4402;

static_assert(sizeof(memfd_handle) == 72);

using fd_passing::checksum_of;

/// Returns the descriptor to fetch for the handle.
[[nodiscard]] inline fd_passing::fd_request behind(const memfd_handle& handle) noexcept {
  return {{handle.exporter, handle.start_time, handle.pid}, handle.serial, handle.descriptor};
}

/// Returns the handle with magic and checksum filled in.
[[nodiscard]] inline memfd_handle completed(const memfd_handle& handle) noexcept {
  return fd_passing::completed(handle, handle_magic);
}

/// Returns the allocation of the handle; `invalid_handle` if no pinfold exporter can have made it. Makes no system
/// call.
[[nodiscard]] result<range> checked(const memfd_handle& handle) noexcept;

}  // namespace pinfold::memfd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes and checks handles of GPU memory.
#pragma once

#include <pinfold/importers/cuda_ipc.hpp>

#include "fd_passing/checksum.hpp"
#include "fd_passing/exporter_id.hpp"

namespace pinfold::cuda_ipc {

/// The letters PFCUIPC and the version of the layout. Version 1 lacked the number of the host.
inline constexpr std::uint64_t handle_magic = 0x5046'4355'4950'4302;

static_assert(sizeof(cuda_ipc_handle) == 160);

using fd_passing::checksum_of;

/// Returns the handle with magic and checksum filled in.
[[nodiscard]] inline cuda_ipc_handle completed(const cuda_ipc_handle& handle) noexcept {
  return fd_passing::completed(handle, handle_magic);
}

[[nodiscard]] inline cuda_memory_kind kind_of(const cuda_ipc_handle& handle) noexcept {
  return static_cast<cuda_memory_kind>(handle.kind);
}

[[nodiscard]] inline fd_passing::exporter_id origin_of(const cuda_ipc_handle& handle) noexcept {
  return {handle.exporter, handle.start_time, handle.pid};
}

/// Returns the allocation of the handle; `invalid_handle` if no pinfold exporter can have made it. Does not call the
/// driver.
[[nodiscard]] result<range> checked(const cuda_ipc_handle& handle) noexcept;

}  // namespace pinfold::cuda_ipc

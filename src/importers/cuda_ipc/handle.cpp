// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/handle.hpp"

namespace pinfold::cuda_ipc {

namespace {

bool possible(const cuda_ipc_handle& handle) noexcept {
  return handle.size != 0 && handle.base != 0 && handle.size <= UINT64_MAX - handle.base && handle.exporter != 0 &&
         handle.serial != 0 && handle.pid > 0 && (handle.host == 0 || fd_passing::version_of(handle) > 1);
}

bool known_kind(const cuda_ipc_handle& handle) noexcept {
  switch (kind_of(handle)) {
    case cuda_memory_kind::allocation:
    case cuda_memory_kind::segments: return handle.pool == 0;
    case cuda_memory_kind::pool: return handle.pool != 0;
  }
  return false;
}

}  // namespace

result<range> checked(const cuda_ipc_handle& handle) noexcept {
  if (!fd_passing::is_kind(handle, handle_magic)) return fail(errc::invalid_handle, "not a GPU memory handle");
  if (!fd_passing::is_known(handle, handle_magic))
    return fail(errc::invalid_handle, "the GPU memory handle has the layout of a newer release");
  if (handle.check != checksum_of(handle)) return fail(errc::invalid_handle, "the GPU memory handle is damaged");
  if (!possible(handle) || !known_kind(handle))
    return fail(errc::invalid_handle, "the GPU memory handle has impossible contents");
  return handle.allocation();
}

}  // namespace pinfold::cuda_ipc

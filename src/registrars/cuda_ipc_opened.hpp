// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What this process has open of other processes' GPU memory: one table for all importers.
///
/// Drivers differ in what a second open of a handle does: some count it and give the same address, some refuse it. Here
/// it is counted, so that neither matters.
#pragma once

#include "registrars/cuda_api.hpp"
#include "registrars/cuda_held.hpp"
#include "registrars/cuda_ipc_handle.hpp"
#include "registrars/cuda_only.hpp"

#include <cstring>
#include <vector>

namespace pinfold::cuda_ipc {

/// One mapping, as it has to be closed.
struct opened_memory {
  cuda_memory_kind kind = cuda_memory_kind::allocation;
  cuda::device_pointer at = 0;
  std::size_t bytes = 0;                ///< from there on
  std::vector<std::size_t> segments{};  ///< bytes of each that is mapped, in order
  std::uint64_t life = 0;               ///< of the context; segments belong to none
  std::uint64_t pool_hold = 0;          ///< of pool memory, on its pool
  std::size_t closed = 0;               ///< how many of them a close that failed had unmapped before
};

/// One handle, as the driver tells them apart, on one device.
struct open_place {
  int device;
  cuda_ipc_handle handle;
  friend bool operator<(const open_place& left, const open_place& right) noexcept {
    if (left.device != right.device) return left.device < right.device;
    return std::memcmp(&left.handle, &right.handle, sizeof left.handle) < 0;
  }
};

/// Two exporters in one process give one allocation different names, and the driver does not.
[[nodiscard]] inline open_place place_of(int device, cuda_ipc_handle handle) noexcept {
  if (kind_of(handle) == cuda_memory_kind::allocation) handle.exporter = handle.serial = handle.check = 0;
  return {device, handle};
}

using opened_table = cuda::held_table<open_place, opened_memory>;

/// The process's.
inline opened_table& all_opened() noexcept { return cuda::only<opened_table>(); }

}  // namespace pinfold::cuda_ipc

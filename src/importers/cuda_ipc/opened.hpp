// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The GPU memory of other processes that this process has open: one table for all importers.
///
/// Drivers differ on a second open of a handle: some count it and return the same address, some refuse it. This table
/// counts the opens itself, so the difference does not matter.
#pragma once

#include "cuda/api.hpp"
#include "cuda/only.hpp"
#include "cuda/open_table.hpp"
#include "importers/cuda_ipc/handle.hpp"
#include "importers/cuda_ipc/windows.hpp"

#include <cstring>
#include <memory>
#include <vector>

namespace pinfold::cuda_ipc {

/// One mapping, with all that its close needs.
struct opened_memory {
  cuda_memory_kind kind = cuda_memory_kind::allocation;
  cuda::device_pointer at = 0;
  std::size_t bytes = 0;                ///< from `at` on
  std::vector<std::size_t> segments{};  ///< bytes of each mapped segment, in order
  std::uint64_t life = 0;               ///< of the context; segments belong to no context
  std::uint64_t pool_pin = 0;           ///< for pool memory, the hold on its pool
  std::size_t closed = 0;               ///< how many segments a failed close has unmapped
  bool wrong = false;                   ///< not the memory that the handle names, and the driver refused to close it
  std::shared_ptr<window> in{};         ///< the window in which the segments have a place; null: addresses of their own
};

/// One handle, by the bytes that the driver distinguishes, on one device. Mappings in windows are separate: only the
/// importer of the window shares them.
struct open_place {
  int device;
  cuda::device_pointer window;  ///< 0: in none
  cuda_ipc_handle handle;
  friend bool operator<(const open_place& left, const open_place& right) noexcept {
    if (left.device != right.device) return left.device < right.device;
    if (left.window != right.window) return left.window < right.window;
    return std::memcmp(&left.handle, &right.handle, sizeof left.handle) < 0;
  }
};

/// Returns the place of a handle, without the exporter's own names for the allocation: two exporters in one process
/// name one allocation differently, but the driver does not.
[[nodiscard]] inline open_place place_of(int device, cuda_ipc_handle handle, cuda::device_pointer window = 0) noexcept {
  if (kind_of(handle) == cuda_memory_kind::allocation) handle.exporter = handle.serial = handle.check = 0;
  return {device, window, handle};
}

using opened_table = cuda::open_table<open_place, opened_memory>;

inline opened_table& all_opened() noexcept { return cuda::only<opened_table>(); }

}  // namespace pinfold::cuda_ipc

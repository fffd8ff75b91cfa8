// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Chooses the place of an allocation: the lowest one that fits.
///
/// From 2 MiB on, an allocation has physical memory and addresses of its own. Smaller ones share blocks of 2 MiB. From
/// 4 KiB on they have whole pages and physical memory of their own, so that an importer keeps seeing the old bytes of a
/// freed one. Allocations below 4 KiB share pages, at multiples of 512 bytes.
///
/// All functions run under the driver's lock.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

struct request {
  origin from = origin::allocated;
  context_object* context = nullptr;
  device of = 0;
  std::uint64_t bytes = 0;
  memory_pool pool = nullptr;  ///< blocks are shared inside one pool only
  std::uint64_t pool_id = 0;
  std::uint64_t handle_types = 0;
};

/// Sets the address, or returns out_of_memory, or invalid_value for no bytes at all.
status allocate(driver& all, const request& wanted, device_pointer* made);

/// Frees a range that `allocate` made.
void free_memory(driver& all, device_pointer base) noexcept;

/// Frees an allocation, or memory imported from a pool, as cuMemFree does. Returns invalid_value when neither begins at
/// the address.
status free_any(driver& all, device_pointer base);

/// Returns whether the range is an allocation of any kind that is not freed yet.
bool is_allocation(const range& here) noexcept;

}  // namespace emulated_cuda

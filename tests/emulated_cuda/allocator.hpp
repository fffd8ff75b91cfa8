// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where an allocation lies: the lowest place that fits.
///
/// From 2 MiB on, an allocation has physical memory and addresses of its own. Smaller ones share blocks of 2 MiB: from
/// 4 KiB on they have whole pages and physical memory of their own, so that an importer goes on to see the old bytes of
/// one that was freed. Smaller ones yet share pages, at multiples of 512 bytes.
///
/// All of it under the driver's lock.
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

/// invalid_value for no bytes at all, out_of_memory; or the address is set.
status allocate(driver& all, const request& wanted, device_pointer* made);

/// The range must have been made by `allocate`.
void free_memory(driver& all, device_pointer base) noexcept;

/// What cuMemFree does: an allocation, or memory imported from a pool. invalid_value: the address begins neither.
status free_any(driver& all, device_pointer base);

/// Allocated, of whatever kind, and not freed yet.
bool is_allocation(const range& here) noexcept;

}  // namespace emulated_cuda

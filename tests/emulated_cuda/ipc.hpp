// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that other processes allocated with cuMemAlloc. All functions run under the driver's lock.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

/// The contents of an ipc_memory_handle: opaque to programs, as NVIDIA's is.
struct memory_handle {
  static constexpr std::uint32_t right_magic = 0x43504945;

  std::uint32_t magic = right_magic;
  std::int32_t of = 0;  ///< the device
  file_address file;
  std::uint64_t base = 0;  ///< in the exporter's addresses
  std::uint64_t bytes = 0;
  std::uint64_t serial = 0;
  std::uint64_t offset = 0;  ///< in the file
};
static_assert(sizeof(memory_handle) == sizeof(ipc_memory_handle));

memory_handle handle_of(const range& allocation) noexcept;

/// Finds the exporter's memory. When the allocation is gone, finds what lies at its base now, and changes `wanted` into
/// that, or fails.
status find_memory(const driver& all, memory_handle& wanted, std::shared_ptr<backing>& found);

/// Maps the memory at the same offset in a block as at the exporter, as if the whole block were mapped. Completes
/// `made`, whose origin, context and pool are set, and adds it to the driver's ranges.
status map_import(driver& all, const memory_handle& wanted, const backing& memory, range& made);

/// Adds the imports' part of the counters.
void count_imports(const driver& all, counters& into) noexcept;
void forget_import_counts() noexcept;

}  // namespace emulated_cuda

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Queries the driver about a pointer.
#pragma once

#include "cuda/driver.hpp"

#include <cstddef>

namespace pinfold::cuda {

/// The facts of the allocation that contains the pointer.
struct memory_facts {
  memory_type type{};
  unsigned long long buffer_id = 0;
  bool managed = false;
  bool legacy_capable = false;     ///< cuIpcGetMemHandle accepts it
  std::uint64_t handle_types = 0;  ///< the handle types that its memory was made for
  memory_pool pool = nullptr;      ///< null: the memory belongs to no pool
  int device = 0;
  device_pointer base = 0;
  std::size_t size = 0;

  /// Whether this is memory of cuMemCreate: physical segments that the application maps and unmaps one by one.
  [[nodiscard]] bool is_mapped_by_application() const noexcept {
    return !legacy_capable && pool == nullptr && !managed;
  }
};

/// The facts of one physical segment of mapped memory.
struct segment_facts {
  device_pointer base = 0;
  std::size_t size = 0;
  unsigned long long block_id = 0;  ///< unique to this segment in this process
  friend bool operator==(const segment_facts&, const segment_facts&) noexcept = default;
};

/// Returns the facts of the memory; `invalid_argument` if CUDA does not know it.
[[nodiscard]] result<memory_facts> facts_of(const driver_table& calls, device_pointer pointer) noexcept;

/// Returns the segment that contains the pointer; `invalid_range` if none is mapped there.
[[nodiscard]] result<segment_facts> segment_at(const driver_table& calls, device_pointer pointer) noexcept;

}  // namespace pinfold::cuda

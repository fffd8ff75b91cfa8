// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the driver knows of a pointer.
#pragma once

#include "registrars/cuda_driver.hpp"

#include <cstddef>

namespace pinfold::cuda {

/// Of the allocation that the pointer lies in.
struct memory_facts {
  memory_type type{};
  unsigned long long buffer_id = 0;
  bool managed = false;
  bool legacy_capable = false;     ///< cuIpcGetMemHandle takes it
  std::uint64_t handle_types = 0;  ///< that its memory was made for
  memory_pool pool = nullptr;      ///< null: of none
  int device = 0;
  device_pointer base = 0;
  std::size_t size = 0;

  /// Memory of cuMemCreate: in physical segments, which the application maps and unmaps one by one.
  [[nodiscard]] bool is_mapped_by_application() const noexcept {
    return !legacy_capable && pool == nullptr && !managed;
  }
};

/// Of one physical segment of mapped memory.
struct segment_facts {
  device_pointer base = 0;
  std::size_t size = 0;
  unsigned long long block_id = 0;  ///< never another's in this process
  friend bool operator==(const segment_facts&, const segment_facts&) noexcept = default;
};

/// `invalid_argument` when it is no memory that CUDA knows.
[[nodiscard]] result<memory_facts> facts_of(const driver_table& calls, device_pointer pointer) noexcept;

/// The segment that the pointer lies in; `invalid_range` when none is mapped there.
[[nodiscard]] result<segment_facts> segment_at(const driver_table& calls, device_pointer pointer) noexcept;

}  // namespace pinfold::cuda

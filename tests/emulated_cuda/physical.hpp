// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Physical memory without addresses, made by cuMemCreate. All functions run under the driver's lock.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

struct physical {
  backing memory;
  std::uint64_t charged = 0;  ///< to the device; 0 where the memory is another process's

  physical(backing owned, std::uint64_t paid) noexcept : memory(std::move(owned)), charged(paid) {}
  physical(const physical&) = delete;
  physical& operator=(const physical&) = delete;
  ~physical();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory.about.data_bytes; }
};

/// An allocation's handle. Its number stays reserved while the memory is mapped, even after the handle was released.
struct allocation_handle {
  std::shared_ptr<physical> memory;
  unsigned references = 1;
};

std::map<generic_allocation, allocation_handle>& handles();

generic_allocation new_handle(std::shared_ptr<physical> memory);

/// Marks the label of a file that holds no allocation, in place of the pool.
inline constexpr std::uint64_t is_pool = UINT64_MAX;
inline constexpr std::uint64_t is_event = UINT64_MAX - 1;

}  // namespace emulated_cuda

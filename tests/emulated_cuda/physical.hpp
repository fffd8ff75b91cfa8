// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Physical memory without addresses: what cuMemCreate makes. Under the driver's lock.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

struct physical {
  backing memory;
  std::uint64_t charged = 0;  ///< to the device; none, where the memory is another process's

  physical(backing owned, std::uint64_t paid) noexcept : memory(std::move(owned)), charged(paid) {}
  physical(const physical&) = delete;
  physical& operator=(const physical&) = delete;
  ~physical();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory.about.data_bytes; }
};

/// A handle's number stays the memory's own for as long as it is mapped, even where the handle was released.
struct allocation_handle {
  std::shared_ptr<physical> memory;
  unsigned references = 1;
};

std::map<generic_allocation, allocation_handle>& handles();

generic_allocation new_handle(std::shared_ptr<physical> memory);

/// A file that holds no allocation: its label says so in place of the pool.
inline constexpr std::uint64_t is_pool = UINT64_MAX;
inline constexpr std::uint64_t is_event = UINT64_MAX - 1;

}  // namespace emulated_cuda

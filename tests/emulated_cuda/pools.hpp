// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory pools, made here or imported. All functions run under the driver's lock.
#pragma once

#include "driver.hpp"

/// A pool. It stays in memory when it is destroyed, so that its address never means another pool.
struct pinfold::cuda::memory_pool_object {
  int of = 0;
  emulated_cuda::backing file;  ///< without data; its inode names the pool in all processes; none: not exportable
  std::uint64_t handle_types = 0;
  bool imported = false;
  bool exported = false;  ///< before that, no pointer into it is
  bool is_default = false;
  bool destroyed = false;

  [[nodiscard]] std::uint64_t name() const noexcept { return file.inode; }
};

namespace emulated_cuda {

/// Returns null when there is no such pool, or none any more.
memory_pool_object* find_pool(memory_pool wanted) noexcept;

memory_pool add_pool(memory_pool_object made);

/// Returns the device's own pool, which allocates where no pool is named.
memory_pool default_pool(device of);

}  // namespace emulated_cuda

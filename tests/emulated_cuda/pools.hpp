// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory pools, made here or imported. Under the driver's lock.
#pragma once

#include "driver.hpp"

/// Stays in memory when it is destroyed, so that its address never means another pool.
struct pinfold::cuda::memory_pool_object {
  int of = 0;
  emulated_cuda::backing file;  ///< no data; its inode is the pool's name in all processes. None: not for export
  std::uint64_t handle_types = 0;
  bool imported = false;
  bool is_default = false;
  bool destroyed = false;

  [[nodiscard]] std::uint64_t name() const noexcept { return file.inode; }
};

namespace emulated_cuda {

/// Null: there is no such pool, or there is none any more.
memory_pool_object* find_pool(memory_pool wanted) noexcept;

memory_pool add_pool(memory_pool_object made);

/// The device's own, which allocates where no pool is named.
memory_pool default_pool(device of);

}  // namespace emulated_cuda

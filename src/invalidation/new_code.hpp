// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counts calls that may bring new code into the process. The hooks count them; the monitor that relies on the hooks
/// alone then scans the code again.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::invalidation {

/// The counters. Constant-initialised and without a destructor, as the hooks may count at any time. A call is counted
/// after it has returned, and before its caller continues.
struct new_code {
  std::atomic<std::uint64_t> mapped{0};   ///< executable memory was mapped
  std::atomic<std::uint64_t> changed{0};  ///< memory was made executable: it may hold earlier code
  std::atomic<std::uint64_t> rings{0};    ///< an io_uring was made or entered through `syscall`
  std::atomic<unsigned> relied_on{0};     ///< how many objects rely on it: if any, each call invalidates everything

  [[nodiscard]] std::uint64_t sum() const noexcept {
    return mapped.load(std::memory_order_acquire) + changed.load(std::memory_order_acquire) +
           rings.load(std::memory_order_acquire);
  }
};
inline constinit new_code code_events;

}  // namespace pinfold::invalidation

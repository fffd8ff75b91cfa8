// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What brings other code into a process: the hooks count it, and who trusts them alone looks at the code again.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::watch {

/// Constant initialised, and with nothing to destroy: the hooks count at any time. Each is counted when the call that
/// does it has returned, and before its caller goes on.
struct new_code {
  std::atomic<std::uint64_t> mapped{0};   ///< executable memory was mapped
  std::atomic<std::uint64_t> changed{0};  ///< memory was made executable: it may be code that was there before
  std::atomic<std::uint64_t> rings{0};    ///< an io_uring was made or entered through `syscall`
  std::atomic<unsigned> relied_on{0};     ///< how many rely on it: for them all that was kept is invalidated

  [[nodiscard]] std::uint64_t sum() const noexcept {
    return mapped.load(std::memory_order_acquire) + changed.load(std::memory_order_acquire) +
           rings.load(std::memory_order_acquire);
  }
};
inline constinit new_code code_events;

}  // namespace pinfold::watch

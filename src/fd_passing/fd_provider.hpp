// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface from which a server takes the descriptors that it passes on.
#pragma once

#include <pinfold/error.hpp>

#include <cstdint>
#include <functional>

namespace pinfold::fd_passing {

/// Shared by an exporter and its server. Usable only in the process that made it.
class fd_provider {
 public:
  fd_provider() noexcept = default;
  fd_provider(const fd_provider&) = delete;
  fd_provider& operator=(const fd_provider&) = delete;
  virtual ~fd_provider() = default;

  /// Calls `use` with the descriptor of `serial`, which stays open during the call; `use` does not wait. Returns
  /// `stale_handle` if the buffer is freed; the peer gets any other error, and makes one of this process's resources
  /// a `driver_error`. The server's thread calls it.
  [[nodiscard]] virtual result<void> lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept = 0;

  /// Whether this is a forked child's copy.
  [[nodiscard]] virtual bool inherited() const noexcept = 0;
};

}  // namespace pinfold::fd_passing

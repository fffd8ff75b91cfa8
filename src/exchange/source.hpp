// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where a server takes the descriptors from that it hands out.
#pragma once

#include <pinfold/error.hpp>

#include <cstdint>
#include <functional>

namespace pinfold::exchange {

/// Shared by an exporter and its server. Usable by the process that made it only.
class source {
 public:
  source() noexcept = default;
  source(const source&) = delete;
  source& operator=(const source&) = delete;
  virtual ~source() = default;

  /// Calls `use` with the descriptor of that serial, which stays open meanwhile; `use` does not wait. `stale_handle`
  /// when there is none any more; any other error goes to the peer as it is. Runs on the server's thread.
  [[nodiscard]] virtual result<void> lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept = 0;

  /// Whether this is a forked child's copy.
  [[nodiscard]] virtual bool inherited() const noexcept = 0;
};

}  // namespace pinfold::exchange

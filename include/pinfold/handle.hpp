// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What an importer needs to open a handle. `docs/use/handles.md` has the layout of each kind of handle.
#pragma once

#include <cstdint>

namespace pinfold {

/// Conditions that a process has to meet to open a handle; combine them with `|`.
enum class handle_needs : std::uint32_t {
  none = 0,                    ///< nothing
  same_host = 1U << 0U,        ///< runs on the exporter's host, in the same boot of it
  exporter_runs = 1U << 1U,    ///< the exporting process still runs
  same_user = 1U << 2U,        ///< has the exporter's user, or is root, or may trace the exporter
  exporter_serves = 1U << 3U,  ///< reaches the socket on which the exporter serves
  cuda_driver = 1U << 4U,      ///< has a CUDA driver, which is the exporter's: a host has one
  device_access = 1U << 5U,    ///< sees the memory's device, and maps on a device that can reach it
  fabric = 1U << 6U,           ///< is in the exporter's IMEX domain. No handle of this release needs it
};

/// Returns the conditions of both.
[[nodiscard]] constexpr handle_needs operator|(handle_needs left, handle_needs right) noexcept {
  return static_cast<handle_needs>(static_cast<std::uint32_t>(left) | static_cast<std::uint32_t>(right));
}

/// Returns whether `all` has every condition of `some`.
[[nodiscard]] constexpr bool contains_all(handle_needs all, handle_needs some) noexcept {
  return (static_cast<std::uint32_t>(some) & ~static_cast<std::uint32_t>(all)) == 0;
}

}  // namespace pinfold

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Access rights of a device, and of peers through it, to registered memory.
#pragma once

#include <cstdint>

namespace pinfold {

/// A set of rights; combine with `|`.
enum class rights : std::uint8_t {
  none = 0,
  local_read = 1,      ///< the device reads it for this process
  local_write = 2,     ///< the device writes it for this process
  remote_read = 4,     ///< peers read it
  remote_write = 8,    ///< peers write it
  remote_atomic = 16,  ///< peers do atomic operations on it
};

[[nodiscard]] constexpr rights operator|(rights a, rights b) noexcept {
  return static_cast<rights>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr rights operator&(rights a, rights b) noexcept {
  return static_cast<rights>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}

/// Returns whether `have` contains all of `wanted`.
[[nodiscard]] constexpr bool includes(rights have, rights wanted) noexcept { return (have & wanted) == wanted; }

/// Returns whether `of` contains any right of a peer.
[[nodiscard]] constexpr bool any_remote(rights of) noexcept {
  return (of & (rights::remote_read | rights::remote_write | rights::remote_atomic)) != rights::none;
}

/// The usual rights: the device may read and write for this process.
inline constexpr rights local_access = rights::local_read | rights::local_write;

}  // namespace pinfold

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The access of a device, and of peers through it, to registered memory.
#pragma once

#include <cstdint>

namespace pinfold {

/// A set of kinds of access; combine with `|`.
enum class access_flags : std::uint8_t {
  none = 0,
  local_read = 1,      ///< the device reads the memory on behalf of this process
  local_write = 2,     ///< the device writes the memory on behalf of this process
  remote_read = 4,     ///< peers read it
  remote_write = 8,    ///< peers write it
  remote_atomic = 16,  ///< peers do atomic operations on it
};

/// Returns the access that is in either.
[[nodiscard]] constexpr access_flags operator|(access_flags a, access_flags b) noexcept {
  return static_cast<access_flags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// Returns the access that is in both.
[[nodiscard]] constexpr access_flags operator&(access_flags a, access_flags b) noexcept {
  return static_cast<access_flags>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}

/// Returns whether `have` contains all of `wanted`.
[[nodiscard]] constexpr bool contains_all(access_flags have, access_flags wanted) noexcept {
  return (have & wanted) == wanted;
}

/// Returns whether `of` contains any access of a peer.
[[nodiscard]] constexpr bool any_remote(access_flags of) noexcept {
  return (of & (access_flags::remote_read | access_flags::remote_write | access_flags::remote_atomic)) !=
         access_flags::none;
}

/// Returns whether `of` contains any access that writes.
[[nodiscard]] constexpr bool any_write(access_flags of) noexcept {
  return (of & (access_flags::local_write | access_flags::remote_write | access_flags::remote_atomic)) !=
         access_flags::none;
}

/// The usual access: the device may read and write for this process.
inline constexpr access_flags local_access = access_flags::local_read | access_flags::local_write;

}  // namespace pinfold

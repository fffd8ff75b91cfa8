// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The first and the last member of handles: kind and version, and the checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pinfold::fd_passing {

namespace detail {

constexpr std::array<std::uint32_t, 256> make_crc32c_table() noexcept {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? 0x82f6'3b78U : 0U);
    table[i] = value;
  }
  return table;
}

inline constexpr auto crc32c_table = make_crc32c_table();

}  // namespace detail

/// Returns the CRC-32C (Castagnoli, RFC 3720), which detects every error of one to three bits, and every burst of up to
/// 32 bits.
[[nodiscard]] constexpr std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  std::uint32_t value = ~0U;
  for (const std::byte byte : bytes) {
    value = (value >> 8U) ^ detail::crc32c_table[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  }
  return ~value;
}

/// Returns the correct value of `handle.check`, its last member.
template <class Handle>
[[nodiscard]] std::uint32_t checksum_of(const Handle& handle) noexcept {
  static_assert(std::has_unique_object_representations_v<Handle>);
  static_assert(offsetof(Handle, check) == sizeof(Handle) - sizeof(Handle::check));
  return crc32c(std::as_bytes(std::span(&handle, 1)).first(offsetof(Handle, check)));
}

/// Returns the handle with magic and checksum filled in.
template <class Handle>
[[nodiscard]] Handle completed(Handle handle, std::uint64_t magic) noexcept {
  handle.magic = magic;
  handle.check = checksum_of(handle);
  return handle;
}

/// The version of the layout, in the last byte of `magic`.
template <class Handle>
[[nodiscard]] constexpr std::uint64_t version_of(const Handle& handle) noexcept {
  return handle.magic & 0xffU;
}

/// Whether the handle is of the same kind as handles that begin with `newest`, in any version.
template <class Handle>
[[nodiscard]] constexpr bool is_kind(const Handle& handle, std::uint64_t newest) noexcept {
  return (handle.magic ^ newest) <= 0xffU;
}

/// Whether this release reads the version of the handle, which is of this kind.
template <class Handle>
[[nodiscard]] constexpr bool is_known(const Handle& handle, std::uint64_t newest) noexcept {
  return version_of(handle) != 0 && handle.magic <= newest;
}

}  // namespace pinfold::fd_passing

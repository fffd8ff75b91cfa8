// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How a memfd handle is put together and recognised.
///
/// The checksum finds damage, such as bytes lost on the way or a handle of something else. It is no protection against
/// people: who may open a buffer is decided by the kernel, when the descriptor is fetched.
#pragma once

#include <pinfold/registrars/memfd.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pinfold::memfd {

/// The letters PFMEMFD and the version of the layout.
inline constexpr std::uint64_t handle_magic = 0x5046'4d45'4d46'4401;

static_assert(sizeof(memfd_handle) == 72 && std::has_unique_object_representations_v<memfd_handle>);
static_assert(offsetof(memfd_handle, check) == sizeof(memfd_handle) - sizeof(memfd_handle::check));

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

/// CRC-32C (Castagnoli, RFC 3720): every error of one to three bits, and every burst of up to 32 bits, shows.
[[nodiscard]] constexpr std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  std::uint32_t value = ~0U;
  for (const std::byte byte : bytes) {
    value = (value >> 8U) ^ detail::crc32c_table[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  }
  return ~value;
}

/// What `handle.check` has to be.
[[nodiscard]] inline std::uint32_t checksum_of(const memfd_handle& handle) noexcept {
  return crc32c(std::as_bytes(std::span(&handle, 1)).first(offsetof(memfd_handle, check)));
}

/// The handle with magic and checksum filled in.
[[nodiscard]] inline memfd_handle completed(memfd_handle handle) noexcept {
  handle.magic = handle_magic;
  handle.check = checksum_of(handle);
  return handle;
}

/// Bytes of a page on this host.
[[nodiscard]] std::size_t page_bytes() noexcept;

/// The allocation that the handle stands for; `invalid_handle` when it cannot be one of ours. No system call.
[[nodiscard]] result<range> checked(const memfd_handle& handle) noexcept;

}  // namespace pinfold::memfd

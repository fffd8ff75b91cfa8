// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Bytes that identify their owner: they differ for every seed and every place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfold::testing {

[[nodiscard]] constexpr std::byte pattern_byte(std::uint32_t seed, std::size_t place) noexcept {
  std::uint64_t mixed = (std::uint64_t{seed} << 40U) ^ place;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
  return static_cast<std::byte>(mixed >> 56U);
}

inline void write_pattern(void* at, std::size_t bytes, std::uint32_t seed) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) static_cast<std::byte*>(at)[i] = pattern_byte(seed, i);
}

[[nodiscard]] inline bool holds_pattern(const void* at, std::size_t bytes, std::uint32_t seed) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<const std::byte*>(at)[i] != pattern_byte(seed, i)) return false;
  }
  return true;
}

}  // namespace pinfold::testing

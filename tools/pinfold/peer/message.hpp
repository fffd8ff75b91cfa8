// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Messages whose every byte both sides can compute: the content depends on a seed and on the position.
#pragma once

#include <pinfold/importers/memfd.hpp>
#include <pinfold/peer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tool {

/// A message at the first byte of a peer's exported buffer.
struct message {
  pinfold::peer_id peer;
  pinfold::memfd_handle handle;
  std::size_t size = 0;    ///< bytes
  std::uint64_t seed = 0;  ///< of the content
};

/// Returns a seed that no other peer, buffer or generation of a buffer has.
[[nodiscard]] std::uint64_t seed_for(std::uint64_t peer, std::uint64_t buffer, std::uint64_t generation) noexcept;

/// Writes the content of `seed` from `position` on, which is a multiple of 8.
void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t position = 0) noexcept;

/// Returns whether the bytes are the content of `seed` from `position` on, which is a multiple of 8.
[[nodiscard]] bool holds(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t position = 0) noexcept;

/// Returns the eight bytes of that content at a position, which is a multiple of 8.
[[nodiscard]] std::uint64_t word_at(std::uint64_t seed, std::size_t position) noexcept;

}  // namespace tool

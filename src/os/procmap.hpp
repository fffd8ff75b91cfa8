// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One mapping of this process, as the kernel lists it.
#pragma once

#include "os/own_maps.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pinfold::detail {

struct procmap {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t page_bytes = 0;  ///< 0 if unknown
  std::uint64_t inode = 0;     ///< 0 for anonymous memory, and for the System V segment with the id 0
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  bool shared = false;

  /// Returns whether no file backs the mapping, and no other process has it.
  [[nodiscard]] bool is_anonymous() const noexcept {
    return inode == 0 && device_major == 0 && device_minor == 0 && !shared;
  }
};

/// Returns the mapping at an address, and writes its path to `path` if that has room. Returns nothing, and sets
/// `errno`, if there is no mapping (ENOENT), before Linux 6.11, and if the list is unavailable.
[[nodiscard]] std::optional<procmap> mapping_at(const own_maps& maps, std::uintptr_t address,
                                                std::span<char> path = {}) noexcept;

/// As `mapping_at`, but returns the next mapping if there is none at the address, and ENOENT if none follows.
[[nodiscard]] std::optional<procmap> mapping_from(const own_maps& maps, std::uintptr_t address) noexcept;

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One slab: its memory, its registration, and its allocations.
#pragma once

#include "pools/block_map.hpp"
#include "pools/pages.hpp"

#include <pinfold/detail/slabs.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::detail {

/// Guarded by the pool's lock, except while only the thread that makes or frees it can reach it.
struct slab {
  /// Throws `std::bad_alloc`.
  slab(const pools::mapping& mapped, bool is_sealed, bool for_one, std::size_t granule_bytes)
      : mapping(mapped),
        sealed(is_sealed),
        dedicated(for_one),
        granule(for_one ? mapped.memory.size() : granule_bytes),
        touched(mapped.used_before ? mapped.memory.size() : 0),
        blocks(static_cast<std::uint32_t>(mapped.memory.size() / granule)) {}

  pools::mapping mapping;
  bool sealed;
  bool dedicated;           ///< for one large allocation: the slab is one granule
  std::size_t granule;      ///< bytes, a power of 2 unless dedicated
  std::size_t touched;      ///< bytes from the beginning that may not be zero
  pools::block_map blocks;  ///< in granules

  lease_base held{};
  registration object{};

  std::size_t used = 0;  ///< bytes in allocations, or resting
  std::size_t allocations = 0;
  std::size_t leases = 0;
  std::size_t resting = 0;  ///< bytes freed while a lease existed
  unsigned listed = 0;      ///< the class of free blocks under which the pool lists it; 0: not listed
  slab* previous = nullptr;
  slab* next = nullptr;

  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept {
    return reinterpret_cast<std::byte*>(mapping.memory.begin + offset);
  }
  [[nodiscard]] bool unused() const noexcept { return used == 0 && leases == 0; }
};

}  // namespace pinfold::detail

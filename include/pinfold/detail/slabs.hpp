// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface between the typed pools and their one compiled core. Not for users; it may change in any release.
#pragma once

#include <pinfold/lease_base.hpp>
#include <pinfold/pools/options.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace pinfold::detail {

class slab_pool;
struct slab;

/// The registration of a slab.
struct slab_registration {
  lease_base held;
  registration object;
};

/// A cache, type-erased. The pool holds no lock during these calls. If the pool is synchronized, many threads may make
/// them at once.
struct slab_driver {
  std::shared_ptr<void> cache;
  result<slab_registration> (*acquire)(void* cache, const range& memory, access_flags access) noexcept;
  /// Releases the registration, and closes all registrations without a lease that touch the memory.
  void (*give_back)(void* cache, const range& memory, lease_base& held) noexcept;
  /// Returns whether a lease of the cache touches the memory.
  bool (*is_leased)(void* cache, const range& memory) noexcept;
};

/// Allocated memory, and the registration of its slab.
struct slab_grant {
  void* data;
  const registration* object;
};

/// A counted reference to a slab. While it lives, the slab stays mapped and registered, and memory that is freed in it
/// is not allocated again.
struct slab_pin {
  std::shared_ptr<slab_pool> pool;
  slab* on = nullptr;
};

/// Ends a pool: frees the slabs that are unused. Slabs with leases are freed with the last lease, slabs with
/// allocations never.
struct PINFOLD_EXPORT slab_pool_closer {
  void operator()(std::shared_ptr<slab_pool>* closing) const noexcept;
};
using slab_pool_handle = std::unique_ptr<std::shared_ptr<slab_pool>, slab_pool_closer>;

// Any thread may call these functions; several at the same time only if the pool is synchronized.
[[nodiscard]] PINFOLD_EXPORT slab_pool_handle make_slab_pool(slab_driver driver, pool_options options,
                                                             bool synchronized);
[[nodiscard]] PINFOLD_EXPORT result<slab_grant> allocate(slab_pool& from, std::size_t bytes,
                                                         std::size_t alignment) noexcept;
PINFOLD_EXPORT result<void> deallocate(slab_pool& to, void* data, std::size_t bytes) noexcept;
[[nodiscard]] PINFOLD_EXPORT bool resize(slab_pool& in, void* data, std::size_t bytes, std::size_t wanted) noexcept;
[[nodiscard]] PINFOLD_EXPORT result<registration> registration_of(slab_pool& in, const void* data) noexcept;
[[nodiscard]] PINFOLD_EXPORT result<slab_pin> hold_slab(const std::shared_ptr<slab_pool>& of,
                                                        const void* data) noexcept;
PINFOLD_EXPORT void release(slab_pin& held) noexcept;
[[nodiscard]] PINFOLD_EXPORT const registration& registration_of(const slab_pin& held) noexcept;
PINFOLD_EXPORT std::size_t trim(slab_pool& what) noexcept;
[[nodiscard]] PINFOLD_EXPORT pool_usage usage_of(const slab_pool& of) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::vector<slab_info> slabs_of(const slab_pool& of);

}  // namespace pinfold::detail

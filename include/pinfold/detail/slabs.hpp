// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The seam between the typed pools and their one compiled core. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/hold.hpp>
#include <pinfold/pools/options.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pinfold::detail {

class slab_pool;
struct slab;

/// What a slab is registered as.
struct slab_registration {
  hold held;
  registration object;
};

/// A cache, type-erased. Called without a lock of the pool; any number of calls at once when the pool is synchronized.
struct slab_driver {
  std::shared_ptr<void> cache;
  result<slab_registration> (*acquire)(void* cache, const range& memory, rights access) noexcept;
  /// Ends the registration, and all others that touch the memory, as far as nobody holds them.
  void (*give_back)(void* cache, const range& memory, hold& held) noexcept;
  /// Which of the ranges somebody has a lease on: sets `held` for each. False when there was no memory to find out.
  bool (*leased)(void* cache, std::span<const range> memory, std::span<bool> held) noexcept;
};

/// Memory, and what its slab is registered as.
struct slab_grant {
  void* data;
  const registration* object;
};

/// A count on a slab: it stays mapped and registered, and nothing that is freed in it is given out again.
struct slab_hold {
  std::shared_ptr<slab_pool> pool;
  slab* on = nullptr;
};

/// Frees what nobody uses any more; the rest goes with its last lease, or never.
struct PINFOLD_EXPORT slab_pool_closer {
  void operator()(std::shared_ptr<slab_pool>* closing) const noexcept;
};
using slab_pool_handle = std::unique_ptr<std::shared_ptr<slab_pool>, slab_pool_closer>;

// Any thread, at the same time as well if the pool is synchronized.
[[nodiscard]] PINFOLD_EXPORT slab_pool_handle make_slab_pool(slab_driver driver, pool_options options,
                                                             bool synchronized);
[[nodiscard]] PINFOLD_EXPORT result<slab_grant> allocate(slab_pool& from, std::size_t bytes,
                                                         std::size_t alignment) noexcept;
PINFOLD_EXPORT result<void> deallocate(slab_pool& to, void* data, std::size_t bytes) noexcept;
[[nodiscard]] PINFOLD_EXPORT bool resize(slab_pool& in, void* data, std::size_t bytes, std::size_t wanted) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::optional<registration> registration_of(slab_pool& in, const void* data) noexcept;
[[nodiscard]] PINFOLD_EXPORT result<slab_hold> hold_slab(const std::shared_ptr<slab_pool>& of,
                                                         const void* data) noexcept;
PINFOLD_EXPORT void release(slab_hold& held) noexcept;
[[nodiscard]] PINFOLD_EXPORT const registration& registration_of(const slab_hold& held) noexcept;
PINFOLD_EXPORT std::size_t trim(slab_pool& what) noexcept;
[[nodiscard]] PINFOLD_EXPORT pool_usage usage_of(const slab_pool& of) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::vector<slab_info> slabs_of(const slab_pool& of);

}  // namespace pinfold::detail

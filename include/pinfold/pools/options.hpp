// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Options of a pool of registered memory, and the usage that it reports.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/limits.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace pinfold {

/// Pages under a slab.
enum class page_kind : std::uint8_t {
  best,     ///< the first of the kinds below that the system provides
  hugetlb,  ///< 2 MiB pages that the administrator reserved (`vm.nr_hugepages`)
  thp,      ///< transparent huge pages, 2 MiB
  plain,    ///< the system's small pages
};

/// Returns the kind's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(page_kind kind) noexcept;

/// One slab, for people and tests. `reason` and `native` say why the slab did not get a better kind of page; they are
/// empty and 0 if it got the requested kind.
struct slab_info {
  range memory{};                      ///< its addresses
  page_kind pages = page_kind::plain;  ///< the kind that the slab really got
  const char* reason = "";             ///< a sentence
  std::int32_t native = 0;             ///< the `errno` behind the reason, if a call failed
  std::size_t used = 0;                ///< bytes in allocations, rounded up to size classes
  std::size_t allocations = 0;         ///< allocations not returned yet
  std::size_t leases = 0;              ///< pool leases on the slab
  bool sealed = false;                 ///< of the `sealed_arena`
};

/// The current usage of a pool.
struct pool_usage {
  std::size_t slabs = 0;        ///< number of slabs
  std::size_t bytes = 0;        ///< mapped and registered
  std::size_t used = 0;         ///< of those, in allocations, or freed but held back by a lease
  std::size_t allocations = 0;  ///< not returned yet
  std::size_t misuses = 0;      ///< deallocations of memory that was not allocated; they had no effect
};

/// Options of one pool.
struct pool_options {
  /// Bytes of a slab, rounded up to its pages. A request above half of this size gets a slab of its own.
  std::size_t slab_bytes = std::size_t{2} << 20U;

  page_kind pages = page_kind::best;  ///< if the system does not provide a kind other than `best`, the allocation fails
  access_flags access = local_access;  ///< access that slabs are registered with

  /// Clear memory when it is allocated. Without it, **nothing is cleared**: an allocation can contain data of an
  /// earlier owner of its bytes, or of a device. With `sealed`, the earlier owner can be another pool of this process.
  bool clear = false;

  /// Use slabs that cannot be unmapped, replaced, punched or truncated until the process ends: `sealed_arena`.
  bool sealed = false;

  std::size_t max_bytes = unlimited;  ///< largest number of bytes in slabs

  /// Called at the end of the pool, with the slabs that stay because allocations in them were never returned.
  std::function<void(std::span<const slab_info>)> abandoned{};
};

}  // namespace pinfold

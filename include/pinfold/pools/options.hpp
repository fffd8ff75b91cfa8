// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a pool of registered memory is to be, and what can be read from it.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/rights.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace pinfold {

/// Pages under a slab.
enum class page_kind : std::uint8_t {
  best,     ///< the first of the others that the system gives, in their order
  hugetlb,  ///< 2 MiB pages that the administrator reserved (`vm.nr_hugepages`)
  thp,      ///< transparent huge pages, 2 MiB
  plain,    ///< the system's small pages
};

/// The kind's name as written above.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(page_kind kind) noexcept;

/// One slab, for people and tests. `reason` and `native` say why a better kind of page was not given; they are empty
/// and 0 when the slab has what was wanted.
struct slab_info {
  range memory{};
  page_kind pages = page_kind::plain;  ///< what the slab really got
  const char* reason = "";
  std::int32_t native = 0;      ///< the `errno` behind the reason, when a call failed
  std::size_t used = 0;         ///< bytes in allocations, rounded up to size classes
  std::size_t allocations = 0;  ///< how many are out
  std::size_t leases = 0;       ///< pool leases on the slab
  bool sealed = false;
};

/// What a pool holds now.
struct pool_usage {
  std::size_t slabs = 0;
  std::size_t bytes = 0;        ///< mapped and registered
  std::size_t used = 0;         ///< of those, in allocations or waiting for a lease to end
  std::size_t allocations = 0;  ///< out
  std::size_t misuses = 0;      ///< deallocations of what was not allocated; each changed nothing
};

/// Options of one pool.
struct pool_options {
  /// Bytes of a slab, rounded up to its pages. Requests above half of it get a slab of their own.
  std::size_t slab_bytes = std::size_t{2} << 20U;

  page_kind pages = page_kind::best;  ///< a kind other than `best` is given exactly, or the allocation fails
  rights access = local_access;       ///< what slabs are registered for

  /// Whether allocated memory is zero. Without it, **nothing is cleared**: an allocation can show what an earlier owner
  /// of its bytes, or a device, left there. With `sealed`, an earlier owner can be another pool of this process.
  bool clear = false;

  /// Slabs that nobody can unmap, replace, punch or truncate until the process ends: `sealed_arena`.
  bool sealed = false;

  std::size_t max_bytes = 0;  ///< most bytes in slabs, 0 = no limit

  /// Told, at the end of the pool, which slabs stay because allocations in them were never returned.
  std::function<void(std::span<const slab_info>)> abandoned{};
};

}  // namespace pinfold

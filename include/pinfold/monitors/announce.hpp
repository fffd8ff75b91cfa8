// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Announcing frees without a monitor: for an allocator, or a server with memory pools of its own.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>
#include <memory_resource>

namespace pinfold {

/// Announces to all caches of this process that memory is about to be unmapped, discarded or replaced: no later acquire
/// returns a registration that touches it. Call it **before** the memory goes.
///
/// Takes no lock, allocates nothing, and leaves `errno` alone: any thread may call it, inside allocators and in signal
/// handlers too. Takes a few nanoseconds if no cache has registered the memory. `cache::invalidate` does the same for
/// one cache, at once; with this function the caches process the event at their next request.
PINFOLD_EXPORT void announce_gone(const void* address, std::size_t bytes) noexcept;

/// A memory resource that announces memory before it returns it to the resource behind it. Put it below a pool, where
/// memory really goes, so that blocks which the pool reuses keep their registrations.
///
///     pinfold::announcing_resource system{my_mapping_resource};
///     std::pmr::synchronized_pool_resource pool{&system};
///
/// Thread-safe if the resource behind it is.
class PINFOLD_EXPORT announcing_resource final : public std::pmr::memory_resource {
 public:
  /// Announces for `behind`, which must outlive this resource.
  explicit announcing_resource(std::pmr::memory_resource* behind = std::pmr::get_default_resource()) noexcept
      : behind_(behind) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::pmr::memory_resource* behind_;
};

}  // namespace pinfold

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// For programs that say themselves when memory goes: an allocator, a server with memory pools of its own.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>
#include <memory_resource>

namespace pinfold {

/// Says to all caches of this process that memory is about to be unmapped, discarded or replaced: registrations that
/// touch it are never handed out again. Call it **before** the memory goes.
///
/// Takes no lock, allocates nothing, and leaves `errno` alone: for any thread, inside allocators and in signal
/// handlers. A few nanoseconds for memory that no cache has registered. `cache::invalidate` does the same for one
/// cache, and at once; here the caches find out at their next request.
PINFOLD_EXPORT void announce_gone(const void* address, std::size_t bytes) noexcept;

/// A memory resource that announces what it gives back to the one behind it. It belongs where memory really goes: below
/// a pool, so that blocks which are used again keep their registrations.
///
///     pinfold::announcing_resource system{my_mapping_resource};
///     std::pmr::synchronized_pool_resource pool{&system};
///
/// Thread-safe where the resource behind it is.
class PINFOLD_EXPORT announcing_resource final : public std::pmr::memory_resource {
 public:
  explicit announcing_resource(std::pmr::memory_resource* behind = std::pmr::get_default_resource()) noexcept
      : behind_(behind) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::pmr::memory_resource* behind_;
};

}  // namespace pinfold

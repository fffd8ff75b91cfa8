// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The source of sealed slabs: memory that cannot be unmapped before the process ends.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>

namespace pinfold {

/// The process-wide store of sealed memory.
///
/// Each piece is a memfd, mapped once, with the seals SHRINK, GROW, FUTURE_WRITE and SEAL, and the mapping sealed with
/// `mseal(2)`: neither this process nor another can remove the pages under a registration, by any call. The price is
/// that this library cannot remove them either. A slab that a pool returns waits here for a pool that needs a slab of
/// its size. After `fork`, the child has none of the memory (MADV_DONTFORK) and begins with an empty arena.
///
/// Needs Linux 6.10; on older kernels sealed pools fail with `unsupported`. All functions may be called on any thread.
class PINFOLD_EXPORT sealed_arena {
 public:
  /// The current usage, in bytes.
  struct usage_info {
    std::size_t limit = 0;  ///< largest number of bytes that may ever be sealed
    std::size_t bytes = 0;  ///< sealed so far
    std::size_t idle = 0;   ///< of those, bytes that no pool uses
  };

  /// The limit until a call of `set_limit`.
  static constexpr std::size_t default_limit = std::size_t{256} << 20U;

  /// Sets the limit, in bytes. Memory that is already sealed stays, even if it exceeds the limit.
  static void set_limit(std::size_t bytes) noexcept;

  /// Returns the current usage.
  [[nodiscard]] static usage_info usage() noexcept;
};

}  // namespace pinfold

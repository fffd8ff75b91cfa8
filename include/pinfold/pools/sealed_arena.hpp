// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where sealed slabs come from, and go back to: memory that cannot be unmapped before the process ends.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>

namespace pinfold {

/// The process-wide store of sealed memory.
///
/// Each piece is a memfd, mapped once, with the seals SHRINK, GROW, FUTURE_WRITE and SEAL, and the mapping sealed with
/// `mseal(2)`: neither this process nor another can take the pages away from under a registration, by whatever call.
/// The price: neither can this library. A slab that a pool gives back waits here for a pool that wants one of its size.
/// After `fork`, the child has none of it (MADV_DONTFORK) and begins with an empty arena.
///
/// Needs Linux 6.10; elsewhere sealed pools fail with `unsupported`. All functions may be called on any thread.
class PINFOLD_EXPORT sealed_arena {
 public:
  struct usage_info {
    std::size_t limit = 0;  ///< most bytes that may ever be sealed
    std::size_t bytes = 0;  ///< sealed so far
    std::size_t idle = 0;   ///< of those, in no pool
  };

  /// Before anybody sets another.
  static constexpr std::size_t default_limit = std::size_t{256} << 20U;

  /// Sets the limit. What is sealed already stays, even if it is more.
  static void set_limit(std::size_t bytes) noexcept;

  [[nodiscard]] static usage_info usage() noexcept;
};

}  // namespace pinfold

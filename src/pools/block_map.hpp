// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Records which parts of a slab are allocated. Lies outside the slab, where no device writes.
#pragma once

#include "pools/size_class.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

namespace pinfold::pools {

/// Divides `granules` units of memory into blocks, and merges free blocks. Not thread-safe.
class block_map {
 public:
  /// How many free blocks `take` may examine.
  enum class effort : std::uint8_t {
    little,  ///< a few: certain to succeed only without alignment
    sure,    ///< one, of a class that is certain to hold an aligned block
    all,
  };

  /// Throws `std::bad_alloc`. Requires at least one granule.
  explicit block_map(std::uint32_t granules);

  /// Allocates `length` granules at a multiple of `alignment`, a power of 2. Returns nothing if it finds no room.
  [[nodiscard]] std::optional<std::uint32_t> take(std::uint32_t length, std::uint32_t alignment, effort how) noexcept;

  /// Returns the length of the allocation that begins at `at`; 0 if there is none.
  [[nodiscard]] std::uint32_t allocated(std::uint32_t at) const noexcept;

  /// Frees the allocation that begins at `at`.
  void free(std::uint32_t at) noexcept;

  /// Ends the allocation that begins at `at`, without freeing it: the block rests.
  void rest(std::uint32_t at) noexcept;

  /// Frees all resting blocks.
  void wake() noexcept;

  /// Changes the length of the allocation that begins at `at` to `length` granules. Returns false if the block behind
  /// it is not free, or too short.
  [[nodiscard]] bool resize(std::uint32_t at, std::uint32_t length) noexcept;

  /// Returns the class of the longest free block, or 0 if there is none.
  [[nodiscard]] unsigned longest() const noexcept { return filled_.highest(); }

  /// Returns the lowest class whose every free block holds an aligned block of this length.
  [[nodiscard]] static unsigned sure_class(std::uint32_t length, std::uint32_t alignment) noexcept {
    return class_of(rounded_up(length + alignment - 1));
  }

 private:
  enum class state : std::uint8_t { none, free, used, resting };

  /// `length` and `is` hold for the first granule of every block, and for the last of a free one. All other granules
  /// are `none`.
  struct granule {
    std::uint32_t length : 30;
    std::uint32_t is : 2;
    std::uint32_t next;  // the next free block of the class, or the next resting block
    std::uint32_t previous;
  };
  struct releaser {
    void operator()(granule* memory) const noexcept { std::free(memory); }
  };
  static constexpr std::uint32_t nowhere = UINT32_MAX;

  [[nodiscard]] bool is(std::uint32_t at, state wanted) const noexcept {
    return at < count_ && granules_[at].is == static_cast<std::uint32_t>(wanted);
  }
  void mark(std::uint32_t at, std::uint32_t length, state now) noexcept;
  void add_free(std::uint32_t at, std::uint32_t length) noexcept;
  std::uint32_t remove_free(std::uint32_t at) noexcept;
  void merge(std::uint32_t at, std::uint32_t length) noexcept;
  void carve(std::uint32_t block, std::uint32_t at, std::uint32_t length) noexcept;

  std::uint32_t count_;
  std::unique_ptr<granule[], releaser> granules_;  // zero pages until they are written
  std::array<std::uint32_t, class_count> first_;
  class_set filled_;
  std::uint32_t resting_ = nowhere;
};

}  // namespace pinfold::pools

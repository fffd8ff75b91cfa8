// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Half-open address ranges. `end` is never part of a range, and `range::of` never makes a range that is empty or wraps
/// around.
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold {

/// Addresses `[begin, end)`, in this process or in a peer's.
struct range {
  std::uintptr_t begin = 0;  ///< the first byte
  std::uintptr_t end = 0;    ///< behind the last byte

  /// Returns the `bytes` bytes from `address` on; `invalid_range` if the range is empty or wraps around.
  [[nodiscard]] static constexpr result<range> of(std::uintptr_t address, std::size_t bytes) noexcept {
    if (bytes == 0) return fail(errc::invalid_range, "the range is empty");
    if (bytes > UINTPTR_MAX - address) return fail(errc::invalid_range, "the range wraps around the address space");
    return range{address, address + bytes};
  }

  /// Returns the number of bytes.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  /// Returns whether there are no bytes in it.
  [[nodiscard]] constexpr bool empty() const noexcept { return end <= begin; }
  /// Returns whether all bytes of `inner` are in it.
  [[nodiscard]] constexpr bool contains(const range& inner) const noexcept {
    return begin <= inner.begin && inner.end <= end;
  }
  /// Returns whether the two share a byte.
  [[nodiscard]] constexpr bool overlaps(const range& other) const noexcept {
    return begin < other.end && other.begin < end;
  }

  friend constexpr bool operator==(const range&, const range&) noexcept = default;
};

}  // namespace pinfold

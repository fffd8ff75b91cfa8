// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Divides lengths into classes: four to each power of 2, so that rounding up wastes less than a quarter.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinfold::pools {

inline constexpr unsigned class_count = 128;

/// Returns the class of a length of at least 1: the highest class whose shortest length is not above it.
[[nodiscard]] constexpr unsigned class_of(std::uint32_t length) noexcept {
  const auto exponent = static_cast<unsigned>(std::bit_width(length)) - 1;
  if (exponent < 2) return length;
  return (exponent - 1) * 4 + ((length >> (exponent - 2)) & 3U);
}

/// Returns the shortest length of a class of at least 1.
[[nodiscard]] constexpr std::uint32_t shortest(unsigned of) noexcept {
  return of < 4 ? of : (4 + of % 4) << (of / 4 - 1);
}

/// Returns the least of all classes' shortest lengths that is not below `length`.
[[nodiscard]] constexpr std::uint32_t rounded_up(std::uint32_t length) noexcept {
  const unsigned at = class_of(length);
  return shortest(at) == length ? length : shortest(at + 1);
}

class class_set {
 public:
  void insert(unsigned one) noexcept { words_[one / 64] |= bit(one); }
  void erase(unsigned one) noexcept { words_[one / 64] &= ~bit(one); }

  /// Returns the lowest class that is not below `least`, or `class_count`.
  [[nodiscard]] unsigned first_from(unsigned least) const noexcept {
    if (least >= class_count) return class_count;
    const auto low = least < 64 ? words_[0] & ~(bit(least) - 1) : 0;
    if (low != 0) return static_cast<unsigned>(std::countr_zero(low));
    const auto high = least < 64 ? words_[1] : words_[1] & ~(bit(least) - 1);
    return high == 0 ? class_count : 64 + static_cast<unsigned>(std::countr_zero(high));
  }

  /// Returns the highest class, or 0, the class of no length.
  [[nodiscard]] unsigned highest() const noexcept {
    if (words_[1] != 0) return 63 + static_cast<unsigned>(std::bit_width(words_[1]));
    return words_[0] == 0 ? 0 : static_cast<unsigned>(std::bit_width(words_[0])) - 1;
  }

 private:
  static constexpr std::uint64_t bit(unsigned one) noexcept { return std::uint64_t{1} << (one % 64); }
  std::array<std::uint64_t, 2> words_{};
};

}  // namespace pinfold::pools

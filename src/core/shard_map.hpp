// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Maps addresses to the shards of a cache.
#pragma once

#include "os/check.hpp"

#include <pinfold/options.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// A set of shards, a bit for each.
using shard_set = std::uint64_t;

/// Addresses are divided into *cells* of 2 MiB; larger cells have 128 MiB, 8 GiB, and everything. A range belongs to
/// the smallest cell that contains it, and the cell's hash chooses the shard. So the entries that contain or overlap a
/// range are in a few shards. Thread-safe.
class shard_map {
 public:
  static constexpr std::size_t most_shards = pinfold::most_shards;
  static constexpr std::uintptr_t smallest_cell = std::uintptr_t{1} << 21U;

  /// `shards` is a power of two, at most `most_shards`.
  explicit shard_map(std::size_t shards) noexcept
      : shift_(shards > 1 ? 64 - static_cast<unsigned>(std::bit_width(shards - 1)) : 0),
        factor_(shards > 1 ? 0x9e3779b97f4a7c15ULL : 0),
        levels_(shards > 1 ? 0 : 1) {
    PINFOLD_ASSERT(std::has_single_bit(shards) && shards <= most_shards, "a set has a bit for each shard");
  }

  [[nodiscard]] bool one() const noexcept { return factor_ == 0; }

  /// Returns the level of the smallest cell that contains the range, 0 for the smallest cells.
  [[nodiscard]] static unsigned level_of(const range& where) noexcept {
    PINFOLD_ASSERT(where.begin < where.end, "a range without a byte lies in no cell");
    const auto differs = static_cast<unsigned>(std::bit_width(where.begin ^ (where.end - 1)));
    unsigned level = 0;
    while (differs > cell_bits[level]) ++level;
    return level;
  }

  /// Returns the shard of the cell of that level in which an address lies.
  [[nodiscard]] std::size_t shard_at(unsigned level, std::uintptr_t address) const noexcept {
    return hashed(level == last_level ? 0 : address >> cell_bits[level], level);
  }
  /// Returns the shard of the smallest cell in which an address lies.
  [[nodiscard]] std::size_t shard_at_smallest(std::uintptr_t address) const noexcept {
    return hashed(address >> cell_bits[0], 0);
  }
  /// Returns whether all entries belong to the smallest cells, or there is one shard: then the shard of the smallest
  /// cell has all entries that may contain an address.
  [[nodiscard]] bool smallest_only() const noexcept { return levels_.load(std::memory_order_seq_cst) == 1; }
  [[nodiscard]] std::size_t shard_of(const range& where) const noexcept {
    return one() ? 0 : shard_at(level_of(where), where.begin);
  }

  /// Announces an entry in a cell of this level. Must come before the entry.
  void use(unsigned level) noexcept {
    PINFOLD_ASSERT(level <= last_level, "cells have four sizes");
    const auto bit = std::uint8_t{1} << level;
    if ((levels_.load(std::memory_order_seq_cst) & bit) == 0)
      levels_.fetch_or(static_cast<std::uint8_t>(bit), std::memory_order_seq_cst);
  }

  /// Returns the shards with cells that contain the range, and may have entries.
  [[nodiscard]] shard_set containing(const range& where) const noexcept {
    if (one()) return 1;
    const auto levels = levels_.load(std::memory_order_seq_cst);
    shard_set found = 0;
    for (auto level = level_of(where); level <= last_level; ++level)
      if ((levels >> level & 1U) != 0) found |= shard_set{1} << shard_at(level, where.begin);
    return found;
  }

  /// Returns the shards with cells that overlap the range, and may have entries.
  [[nodiscard]] shard_set overlapping(const range& where) const noexcept {
    if (one()) return 1;
    if (where.empty()) return 0;
    const auto levels = levels_.load(std::memory_order_seq_cst);
    shard_set found = 0;
    for (unsigned level = 0; level <= last_level; ++level)
      if ((levels >> level & 1U) != 0) found |= overlapping(where, level);
    return found;
  }

  [[nodiscard]] shard_set all() const noexcept {
    return one() ? 1 : ~shard_set{0} >> (64 - (std::size_t{1} << (64 - shift_)));
  }

  /// Calls `each(level)` for the levels in use, from `first` on, until it returns true.
  template <class F>
  [[gnu::always_inline]] void for_levels_from(unsigned first, F&& each) const noexcept {
    const unsigned levels = levels_.load(std::memory_order_relaxed);
    for (auto left = levels >> first << first; left != 0; left &= left - 1)
      if (each(static_cast<unsigned>(std::countr_zero(left)))) return;
  }

  /// Returns how many entries that belong to larger cells than the smallest were published. Sequentially consistent: of
  /// two threads that publish and then look, at least one sees the other's entry.
  [[nodiscard]] std::uint64_t wide_published() const noexcept {
    return wide_published_.load(std::memory_order_seq_cst);
  }
  void count_wide() noexcept { wide_published_.fetch_add(1, std::memory_order_seq_cst); }

 private:
  static constexpr unsigned last_level = 3;
  static constexpr std::array<unsigned, last_level + 1> cell_bits{21, 27, 33, 64};
  static constexpr std::uintptr_t most_cells = 256;  // to look at one by one

  // Mixes the cell number before the multiplication, or two threads walking adjacent memory would collide in every
  // shard once they collide in one.
  [[nodiscard]] std::size_t hashed(std::uintptr_t cell, unsigned level) const noexcept {
    return static_cast<std::size_t>(((cell ^ cell >> 3U) + (std::uintptr_t{level} << 48U)) * factor_ >> shift_);
  }

  [[nodiscard]] shard_set overlapping(const range& where, unsigned level) const noexcept {
    if (level == last_level) return shard_set{1} << shard_at(level, 0);
    const auto first = where.begin >> cell_bits[level];
    const auto last = (where.end - 1) >> cell_bits[level];
    if (last - first >= most_cells) return all();
    shard_set found = 0;
    for (auto cell = first; cell <= last; ++cell) found |= shard_set{1} << shard_at(level, cell << cell_bits[level]);
    return found;
  }

  const unsigned shift_;
  const std::uintptr_t factor_;  // 0 for one shard
  std::atomic<std::uint8_t> levels_;
  alignas(64) std::atomic<std::uint64_t> wide_published_{0};
};

}  // namespace pinfold::core

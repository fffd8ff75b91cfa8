// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counts of the memory that any cache has registered. An unmap of memory that was never registered costs a few loads,
/// and reaches no cache.
#pragma once

#include "invalidation/packed_counts.hpp"

#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::invalidation {

/// Counts registrations, exact to pages of 4 KiB: memory next to registered memory does not touch it. A count is kept
/// at the largest unit that a registration covers as a whole (4 GiB, 16 MiB, 64 KiB, a page), so that `add` costs at
/// most a thousand increments whatever the size (5 us), and one or two for a page. Full counts stay full: those of a
/// page at 15, of larger units at 255. The process has one filter; a child of fork(2) finds it empty.
///
/// Any thread may call any member; a signal handler may call `touches`, which sees memory that was added before its
/// caller could know of that memory. For memory that is added concurrently, either result is correct.
class registered_filter {
 public:
  /// Returns this process's counts. Throws `std::bad_alloc`.
  [[nodiscard]] static registered_filter& here();
  /// Returns null before the first call of `here`.
  [[nodiscard]] static registered_filter* if_there() noexcept { return made.load(std::memory_order_acquire); }

  /// Allocates the counters that `add` needs. Returns false if there is no memory.
  [[nodiscard]] bool prepare(const range& memory) noexcept {
    if (memory.empty()) return true;
    const auto first = memory.begin >> part_shift;
    const auto last = (memory.end - 1) >> part_shift;
    return has_part(first) && (last == first || has_part(last));
  }

  // Called once for each registration, after `prepare` with the same range.
  void add(const range& memory) noexcept {
    if (auto* const counts = counts_of_granule(memory)) return counts->add(whole);
    add_by_units(memory);
  }
  void remove(const range& memory) noexcept {
    if (auto* const counts = counts_of_granule(memory)) return counts->remove(whole);
    remove_by_units(memory);
  }

  /// Returns whether registered memory lies in the pages of the range.
  [[nodiscard]] bool touches(const range& memory) const noexcept;

 private:
  static constexpr unsigned granule_shift = 16;
  static constexpr unsigned chunk_shift = 24;
  static constexpr unsigned part_shift = 32;
  static constexpr unsigned address_bits = 47;
  static constexpr std::size_t part_count = std::size_t{1} << (address_bits - part_shift);

  static constexpr std::uint16_t whole = 0xff;     // of a unit's two counts: registrations that cover the whole unit
  static constexpr std::uint16_t partly = 0xff00;  // registrations that cover some of its pages

  using unit_counts = packed_counts<std::uint16_t, 8>;
  using page_counts = packed_counts<std::uint64_t, 4>;  // of the 16 pages of a granule

  /// The counters of 4 GiB. The kernel allocates only the pages in use.
  struct part {
    std::array<unit_counts, std::size_t{1} << (part_shift - chunk_shift)> chunks;
    std::array<unit_counts, std::size_t{1} << (part_shift - granule_shift)> granules;
    std::array<page_counts, std::size_t{1} << (part_shift - granule_shift)> pages;
  };

  /// 4 GiB of the address space. Both members are in one cache line, as every unmap reads both.
  struct alignas(16) part_slot {
    std::atomic<part*> in{nullptr};
    unit_counts whole;
  };

  // Returns the range's counts if the range is one whole granule, as buffers often are, else null.
  [[nodiscard]] unit_counts* counts_of_granule(const range& memory) noexcept {
    constexpr std::uintptr_t granule = std::uintptr_t{1} << granule_shift;
    const auto number = memory.begin >> part_shift;
    if (memory.end - memory.begin != granule || memory.begin % granule != 0 || number >= part_count) return nullptr;
    part* const in = parts_[number].in.load(std::memory_order_acquire);
    return in == nullptr ? nullptr : &in->granules[(memory.begin >> granule_shift) % in->granules.size()];
  }
  void add_by_units(const range& memory) noexcept;
  void remove_by_units(const range& memory) noexcept;
  // Returns the counters for the range if it lies in one granule, else null.
  [[nodiscard]] part* part_of_granule(const range& memory) const noexcept;
  template <class F>
  void for_each_count(const range& memory, F&& each) noexcept;
  template <class F>
  static void for_each_count_in(part& in, const range& memory, F&& each) noexcept;
  template <class F>
  static void for_each_count_of_pages(part& in, const range& in_granule, F&& each) noexcept;
  [[nodiscard]] bool has_part(std::size_t number) noexcept {
    return number >= part_count || parts_[number].in.load(std::memory_order_acquire) != nullptr || make_part(number);
  }
  [[nodiscard]] bool make_part(std::size_t number) noexcept;
  [[nodiscard]] static bool touches_in(const part& in, const range& memory) noexcept;

  static std::atomic<registered_filter*> made;

  std::array<part_slot, part_count> parts_{};
  std::atomic<bool> beyond_{false};  // whether memory was registered above the addresses that have counters
};

}  // namespace pinfold::invalidation

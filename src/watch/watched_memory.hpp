// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which memory anybody has registered, roughly: so that what is unmapped all day long, and was never registered,
/// costs a few loads and disturbs nobody.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::watch {

/// Counts, for each 64 KiB of the address space, the registrations that touch it. Counts are one byte: one that reaches
/// 255 stays there. One for the process; a child of fork(2) finds it empty.
///
/// Everything may be called on any thread; `touches` also in a signal handler. Memory that was added before the caller
/// of `touches` could know of it is seen; of what is added at the same time nothing is said.
class watched_memory {
 public:
  /// This process's. Throws `std::bad_alloc` when there is no memory for it.
  [[nodiscard]] static watched_memory& here();
  /// Null before that.
  [[nodiscard]] static watched_memory* if_there() noexcept { return made.load(std::memory_order_acquire); }

  /// Makes sure that `add` finds its counters: what it needs memory for. False when there is none.
  [[nodiscard]] bool prepare(const range& memory) noexcept {
    const auto number = memory.begin >> part_shift;
    const bool is_there = !memory.empty() && number == (memory.end - 1) >> part_shift && number < parts_.size() &&
                          parts_[number].load(std::memory_order_acquire) != nullptr;
    return is_there || make_parts(memory);
  }

  // Once for each registration, after `prepare`, and the same range for both.
  void add(const range& memory) noexcept;
  void remove(const range& memory) noexcept;

  /// Whether something registered may lie in the range.
  [[nodiscard]] bool touches(const range& memory) const noexcept;

 private:
  static constexpr unsigned granule_shift = 16;
  static constexpr unsigned part_shift = 32;  // a part has the counters of 4 GiB
  static constexpr unsigned address_bits = 47;
  static constexpr std::size_t granules = std::size_t{1} << (part_shift - granule_shift);
  static constexpr std::uint8_t full = 255;

  using counter = std::atomic<std::uint8_t>;
  struct part {
    std::array<counter, granules> counters{};
  };

  template <class F>
  static void for_each_granule(const range& memory, F&& each) noexcept;
  [[nodiscard]] counter* at(std::uintptr_t granule) noexcept;
  [[nodiscard]] bool make_part(std::size_t number) noexcept;
  [[nodiscard]] bool make_parts(const range& memory) noexcept;

  static std::atomic<watched_memory*> made;

  std::array<std::atomic<part*>, std::size_t{1} << (address_bits - part_shift)> parts_{};
  std::atomic<bool> beyond_{false};  // something above the addresses that have counters
};

}  // namespace pinfold::watch

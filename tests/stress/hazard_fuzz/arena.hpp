// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The slots of a run, found by their address.
#pragma once

#include "slot.hpp"

#include <pinfold/range.hpp>

#include <memory>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

/// Separate slots for all kinds of memory, and adjacent small slots: those of several threads are neighbours for
/// monitors that work in units of 64 KiB.
class arena {
 public:
  arena(std::size_t large, std::size_t small, bool announces) {
    for (std::size_t i = 0; i < large; ++i)
      large_.push_back(std::make_unique<slot>(first_large + i * large_stride, 2 * huge_bytes, announces));
    for (std::size_t i = 0; i < small; ++i)
      small_.push_back(std::make_unique<slot>(first_small + i * small_stride, small_bytes, announces));
  }

  [[nodiscard]] slot& large(std::size_t number) { return *large_.at(number); }
  [[nodiscard]] slot& small(std::size_t number) { return *small_.at(number); }

  /// Returns the number of the last event at that address, which a registration made now records.
  [[nodiscard]] std::uint64_t now_at(std::uintptr_t address) const {
    if (const auto number = (address - first_small) / small_stride; address >= first_small && number < small_.size())
      return small_[number]->now();
    if (const auto number = (address - first_large) / large_stride; address >= first_large && number < large_.size())
      return large_[number]->now();
    return UINT64_MAX;  // memory outside all slots
  }

 private:
  static constexpr std::size_t small_bytes = 2 * page_bytes, small_stride = 4 * page_bytes;
  static constexpr std::size_t large_stride = 8 * huge_bytes;
  static constexpr std::uintptr_t first_large = quiet_address, first_small = quiet_address + (std::uintptr_t{1} << 32U);

  std::vector<std::unique_ptr<slot>> large_, small_;
};

}  // namespace pinfold::testing::hazard_fuzz

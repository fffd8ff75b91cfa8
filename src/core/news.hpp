// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that a cache knows to be gone, and has not dealt with yet.
#pragma once

#include "core/entry.hpp"

#include <pinfold/range.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// A few ranges, and an age: what was claimed before the news of a range came is affected by it, and what came later,
/// in the same place, is not. Ages are small numbers in the entries ("eras"), which only go up when something is
/// claimed while there is unfinished news; so there are plenty.
///
/// Not thread-safe: guarded by the engine's mutex.
class news {
 public:
  struct item {
    range left;           ///< what has not been looked at yet
    std::uint32_t era{};  ///< affects entries of lower eras
  };

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == items_.size(); }

  /// Requires that it is not full.
  void add(const range& gone) noexcept { items_[count_++] = {gone, era_ + 1}; }

  /// Makes room by taking two for one that contains both. More is called stale than is, never less.
  void widen() noexcept {
    item& into = items_[count_ - 2];
    const item& last = items_[--count_];
    into.left = {std::min(into.left.begin, last.left.begin), std::max(into.left.end, last.left.end)};
    into.era = std::max(into.era, last.era);
  }

  /// What comes later is not affected by what is known now. Once the numbers are used up it is: then it is not kept.
  void stamp(entry& claimed) noexcept {
    for (std::size_t i = 0; i < count_; ++i) era_ = std::max(era_, std::min(items_[i].era, entry::last_era));
    claimed.set_era(era_);
  }

  [[nodiscard]] bool affects(const entry& one) const noexcept {
    const auto age = one.era();
    const auto where = one.covered();
    return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                       [&](const item& known) { return age < known.era && where.overlaps(known.left); });
  }

  /// Calls `finished(item&)` for each, the latest first, and forgets those for which it says true.
  template <class F>
  void finish(F&& finished) noexcept {
    for (auto i = count_; i-- > 0;)
      if (finished(items_[i])) items_[i] = items_[--count_];
  }

  /// Requires that it is empty. True when it is time to begin anew: all entries have to be given era 0.
  [[nodiscard]] bool restart() noexcept {
    if (era_ < entry::last_era / 2) return false;
    era_ = 0;
    return true;
  }

 private:
  std::array<item, 32> items_{};
  std::size_t count_ = 0;
  std::uint32_t era_ = 0;
};

}  // namespace pinfold::core

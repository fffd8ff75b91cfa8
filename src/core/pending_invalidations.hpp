// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Invalidations that a cache has read, and has not processed yet.
#pragma once

#include "index/record_page.hpp"

#include <pinfold/range.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// A few pending invalidations, each with an era. An entry that was claimed before an invalidation was read is affected
/// by it; an entry claimed later, at the same address, is not. Eras are small numbers in the entries. They increase
/// only when an entry is claimed while an invalidation is pending, so there are plenty.
///
/// Not thread-safe: guarded by the shard's mutex.
class pending_invalidations {
 public:
  struct item {
    range left;           ///< the part not yet searched for entries
    std::uint32_t era{};  ///< affects entries of lower eras
  };

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == items_.size(); }

  /// Requires `!full()`.
  void add(const range& gone) noexcept {
    PINFOLD_ASSERT(!full(), "the caller widens before it adds");
    items_[count_++] = {gone, era_ + 1};
  }

  /// Makes room by replacing two items by one that contains both. More entries become stale than necessary, never
  /// fewer.
  void widen() noexcept {
    PINFOLD_ASSERT(count_ >= 2, "two items become one");
    item& into = items_[count_ - 2];
    const item& last = items_[--count_];
    into.left = {std::min(into.left.begin, last.left.begin), std::max(into.left.end, last.left.end)};
    into.era = std::max(into.era, last.era);
  }

  /// Gives the record of a claimed entry an era that no pending invalidation affects. When eras are exhausted, the
  /// entry counts as older and is invalidated with them: safe, not cached.
  void stamp(detail::record& claimed) noexcept {
    for (std::size_t i = 0; i < count_; ++i) era_ = std::max(era_, std::min(items_[i].era, index::entry::last_era));
    PINFOLD_ASSERT(era_ <= index::entry::last_era, "an era fits into a record");
    index::set_era(claimed, era_);
  }

  [[nodiscard]] bool affects(const index::entry& one) const noexcept {
    const auto age = one.era();
    const auto where = one.covered();
    return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                       [&](const item& known) { return age < known.era && where.overlaps(known.left); });
  }

  /// Calls `finished(item&)` for each item, the latest first, and removes those for which it returns true.
  template <class F>
  void finish(F&& finished) noexcept {
    for (auto i = count_; i-- > 0;)
      if (finished(items_[i])) items_[i] = items_[--count_];
  }

  /// Sets the eras back to 0 when many are used up. When it returns true, the caller has to give all entries era 0.
  /// Requires `empty()`.
  [[nodiscard]] bool restart() noexcept {
    PINFOLD_ASSERT(empty(), "no item compares eras any more");
    if (era_ < index::entry::last_era / 2) return false;
    era_ = 0;
    return true;
  }

 private:
  std::array<item, 32> items_{};
  std::size_t count_ = 0;
  std::uint32_t era_ = 0;
};

}  // namespace pinfold::core

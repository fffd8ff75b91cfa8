// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lists slabs by their longest free block.
#pragma once

#include "os/check.hpp"
#include "pools/slab.hpp"

#include <array>

namespace pinfold::pools {

/// Not thread-safe.
class slab_list {
 public:
  using slab = detail::slab;

  /// Moves the slab to the list of its longest free block.
  void place(slab& one) noexcept {
    const unsigned now = one.dedicated ? 0 : one.blocks.longest();
    if (now == one.listed) return;
    remove(one);
    if (now != 0) add(one, now);
  }

  void remove(slab& one) noexcept {
    if (one.listed == 0) return;
    PINFOLD_ASSERT(one.previous != nullptr || first_[one.listed] == &one,
                   "only the first slab of a list has none before it");
    if (one.next != nullptr) one.next->previous = one.previous;
    (one.previous == nullptr ? first_[one.listed] : one.previous->next) = one.next;
    if (first_[one.listed] == nullptr) filled_.erase(one.listed);
    one.listed = 0;
    one.previous = one.next = nullptr;
  }

  /// Returns a slab with a free block of at least this class, or null.
  [[nodiscard]] slab* first_from(unsigned least) const noexcept {
    const unsigned at = filled_.first_from(least);
    return at == class_count ? nullptr : first_[at];
  }

  /// Returns the slab to examine after `one`, or null.
  [[nodiscard]] slab* after(const slab& one) const noexcept {
    return one.next != nullptr ? one.next : first_from(one.listed + 1);
  }

 private:
  void add(slab& one, unsigned in) noexcept {
    PINFOLD_ASSERT(one.listed == 0 && one.previous == nullptr, "a slab is in one list at most");
    one.listed = in;
    one.next = first_[in];
    if (one.next != nullptr) one.next->previous = &one;
    first_[in] = &one;
    filled_.insert(in);
  }

  std::array<slab*, class_count> first_{};
  class_set filled_;
};

}  // namespace pinfold::pools

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The eviction policy in its simplest form: the hand goes round, spares each entry that was used since it last passed,
/// and takes out each that is leased, until the next release.
#pragma once

#include <pinfold/statistics.hpp>

#include <algorithm>
#include <list>

namespace pinfold::testing {

/// `Item` has `state`, `leases` and `visited`.
template <class Item>
class second_chance {
 public:
  void add(Item& one) { round_.push_back(&one); }
  void remove(Item& one) {
    round_.remove(&one);
    leased_.remove(&one);
    marked_.remove(&one);
  }
  void release(Item& one) {
    if (leased_.remove(&one) > 0) round_.push_back(&one);
  }

  /// Makes a marked entry live again.
  void revive(Item& one) {
    marked_.remove(&one);
    one.state = entry_state::live;
    round_.push_back(&one);
  }

  /// Returns the entry to close next, or null.
  Item* victim() {
    if (marked_.empty()) mark(std::min<std::size_t>(64, 1 + round_.size() / 16), 2 * round_.size(), true);
    return marked_.empty() ? nullptr : marked_.front();
  }

  /// Marks all entries without a lease and returns the marked ones, to be closed one by one from the front.
  std::list<Item*>& all_idle() {
    mark(round_.size(), round_.size(), false);
    return marked_;
  }

 private:
  void mark(std::size_t wanted, std::size_t steps, bool spare_visited) {
    for (; steps > 0 && wanted > 0 && !round_.empty(); --steps) {
      Item* one = round_.front();
      round_.pop_front();
      if (spare_visited && one->visited) {
        one->visited = false;
        round_.push_back(one);
      } else if (one->leases == 0) {
        one->state = entry_state::evicting;
        marked_.push_back(one);
        --wanted;
      } else {
        (spare_visited ? leased_ : round_).push_back(one);
      }
    }
  }

  std::list<Item*> round_;
  std::list<Item*> leased_;
  std::list<Item*> marked_;
};

}  // namespace pinfold::testing

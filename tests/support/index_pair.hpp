// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The range index and a plain list, given the same calls, so that they can be compared.
#pragma once

#include "core/range_index.hpp"
#include "support/pooled_entries.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <set>

namespace pinfold::testing {

class index_pair {
 public:
  void insert(peer_id peer, const range& covered) {
    auto made = entries_.make(peer, covered);
    while (!index_.ready()) index_.adopt(core::range_index::make_chunk(index_.next_chunk()));
    core::range_index::place place;
    if (index_.find_alone(peer, covered, place)) {
      lied_ = lied_ || overlaps_any(peer, covered);
      index_.insert(made.get(), peer, covered, place);
    } else {
      index_.insert(made.get());
    }
    list_.push_back(std::move(made));
  }

  /// Erases the entry with this number, counted in order of insertion and modulo how many there are.
  void erase(std::size_t number) {
    if (list_.empty()) return;
    auto at = std::next(list_.begin(), static_cast<std::ptrdiff_t>(number % list_.size()));
    index_.erase(at->get());
    list_.erase(at);
  }

  /// Returns whether both find exactly the same entries for `where`, and the index stops at the first when told to.
  [[nodiscard]] bool agree_on(peer_id peer, const range& where) const {
    std::multiset<const core::entry*> found;
    index_.find_overlap(peer, where, [&](const core::entry& one) {
      found.insert(&one);
      return false;
    });
    std::multiset<const core::entry*> expected;
    for (const auto& one : list_)
      if (one->peer() == peer && one->covered().overlaps(where)) expected.insert(one.get());
    const auto* first = index_.find_overlap(peer, where, [](const core::entry&) { return true; });
    const bool first_is_lowest = std::all_of(expected.begin(), expected.end(),
                                             [&](auto* e) { return first->covered().begin <= e->covered().begin; });
    return found == expected && (first == nullptr) == expected.empty() && first_is_lowest;
  }

  [[nodiscard]] bool sound() const { return !lied_ && index_.consistent() && index_.size() == list_.size(); }
  [[nodiscard]] std::size_t size() const { return list_.size(); }

 private:
  [[nodiscard]] bool overlaps_any(peer_id peer, const range& where) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const auto& one) { return one->peer() == peer && one->covered().overlaps(where); });
  }

  bool lied_ = false;  // the index claimed a place for an entry that overlaps others
  pooled_entries entries_;
  core::range_index index_;
  std::list<pooled_entries::owned> list_;
};

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
// Checks the invariants of a range index, for tests.
#include "index/range_index.hpp"

namespace pinfold::index {

// Visits all entries in order.
struct range_index::check {
  range_key before = 0;  // the last key seen, and the end of its range
  std::uintptr_t end_before = 0;
  peer_id peer_before{};
  std::size_t entries = 0;
  std::size_t leaves = 0;
  std::size_t inners = 0;
  std::size_t peers = 0;

  bool leaf(const range_leaf& one, range_key low, range_key high) noexcept {
    if (leaves++ == 0 || one.peer != peer_before) ++peers;
    peer_before = one.peer;
    if (one.count == 0 || one.count > range_leaf::capacity || (one.ends_sorted && !one.are_ends_sorted())) return false;
    for (std::size_t i = 0; i < range_leaf::capacity; ++i)
      if (i < one.count ? !slot(one, i, low, high) : one.begin[i] != range_leaf::no_begin) return false;
    return true;
  }

  bool slot(const range_leaf& in, std::size_t i, range_key low, range_key high) noexcept {
    entry* one = in.entry_at(i);
    const auto key = key_of(in.peer, in.begin[i]);
    const auto end = covered_of(*one).end;
    const bool sorted = (key > before || (key == before && end >= end_before)) && key >= low && key <= high;
    before = key;
    end_before = end;
    ++entries;
    return sorted && peer_of(*one) == in.peer && covered_of(*one).begin == in.begin[i] &&
           in.word[i] == range_leaf::word_of(one) && in.page_after_slot(i) == page_after(end);
  }

  bool node(const void* at, std::size_t level, range_key low, range_key high) noexcept {
    return level == 0 ? leaf(*static_cast<const range_leaf*>(at), low, high)
                      : inner(*static_cast<const range_inner*>(at), level, low, high);
  }

  bool inner(const range_inner& one, std::size_t level, range_key low, range_key high) noexcept {
    ++inners;
    if (one.count == 0 || one.count > range_inner::capacity || (one.ends_sorted && !one.are_ends_sorted()))
      return false;
    for (std::size_t i = one.count; i < range_inner::capacity; ++i)
      if (one.keys[i - 1] != last_key || one.max_end[i] != 0) return false;
    for (std::size_t i = 0; i < one.count; ++i) {
      const auto from = i == 0 ? low : one.keys[i - 1];
      const auto to = i + 1 == one.count ? high : one.keys[i];
      if (from < low || to > high || from > to || one.max_end[i] != reach(one.child[i], level - 1)) return false;
      if (!node(one.child[i], level - 1, from, to)) return false;
    }
    return true;
  }

  static std::uint64_t reach(const void* at, std::size_t level) noexcept {
    return level == 0 ? static_cast<const range_leaf*>(at)->max_end()
                      : static_cast<const range_inner*>(at)->max_end_of_all();
  }

  // Of two neighbouring leaves of a peer under one node, one is more than a quarter full.
  [[nodiscard]] bool well_filled() const noexcept {
    return leaves <= 2 * (peers + inners) + entries / 4 && inners <= leaves;
  }
};

bool range_index::consistent() const noexcept {
  if (root_ == nullptr) return size_ == 0 && height_ == 0 && pool_.bytes_out() == 0;
  if (height_ > 0 && static_cast<const range_inner*>(root_)->count < 2) return false;
  check all;
  if (!all.node(root_, height_, 0, last_key) || all.entries != size_) return false;
  return all.well_filled() && pool_.bytes_out() == all.leaves * sizeof(range_leaf) + all.inners * sizeof(range_inner);
}

}  // namespace pinfold::index

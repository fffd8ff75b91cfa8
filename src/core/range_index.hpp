// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Entries by peer and address. Ranges may nest, overlap and be equal; every one that touches a range is found.
#pragma once

#include "core/entry.hpp"

#include <cstddef>

namespace pinfold::core {

/// A treap ordered by (peer, begin, end, insertion), where each node knows the furthest (peer, end) of its subtree:
/// what cannot reach the range that is looked for is skipped whole. Inserting, erasing and finding the first match cost
/// O(log n), visiting k matches O(log n + k). Links lie in the entries, so nothing is ever allocated.
///
/// Not thread-safe: guarded by the engine's mutex.
class range_index {
 public:
  void insert(entry* added) noexcept;

  /// Requires that the entry is in this index, with the key that it was inserted with.
  void erase(entry* gone) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Calls `stop(entry&)` for the entries of `peer` that overlap `where`, by address, until it says true. Returns that
  /// entry, or null. `stop` must not change the index.
  template <class F>
  entry* find_overlap(peer_id peer, const range& where, F&& stop) const {
    return find_in(root_, peer, where, stop);
  }

  /// Calls `each(entry&)` for every entry in order.
  template <class F>
  void for_each(F&& each) const {
    walk(root_, each);
  }

  /// Whether order, heap and furthest ends are as they must be everywhere. For tests; O(n).
  [[nodiscard]] bool consistent() const noexcept;

 private:
  template <class F>
  static entry* find_in(entry* node, peer_id peer, const range& where, F& stop) {
    if (node == nullptr || !reaches(*node, peer, where.begin)) return nullptr;
    if (entry* found = find_in(node->left, peer, where, stop)) return found;
    if (node->peer > peer || (node->peer == peer && node->covered.begin >= where.end)) return nullptr;
    if (node->peer == peer && node->covered.overlaps(where) && stop(*node)) return node;
    return find_in(node->right, peer, where, stop);
  }

  template <class F>
  static void walk(entry* node, F& each) {
    if (node == nullptr) return;
    walk(node->left, each);
    each(*node);
    walk(node->right, each);
  }

  // Whether anything in the subtree may end after `begin` in this peer, or belong to a later one.
  static bool reaches(const entry& node, peer_id peer, std::uintptr_t begin) noexcept {
    return node.furthest_peer > peer || (node.furthest_peer == peer && node.furthest_end > begin);
  }

  entry* root_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t inserted_ = 0;
};

}  // namespace pinfold::core

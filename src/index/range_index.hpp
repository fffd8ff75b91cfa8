// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An index of entries by peer and address. Ranges may nest, overlap and be equal; a search finds every entry that
/// overlaps a range.
#pragma once

#include "index/range_node_pool.hpp"
#include "os/check.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinfold::index {

/// A B+ tree ordered by (peer, begin, end, insertion). Each inner node stores the largest end of each child, so that a
/// search skips every child that ends before its range. Inserting, erasing and finding the first match cost O(log n),
/// and visiting k matches at most O(log n) each. Among k ranges with the same begin, inserting or erasing one compares
/// up to k. Takes about 20 bytes for each entry if entries come in order, otherwise 26. Nodes come from a pool that is
/// filled outside of the lock.
///
/// Not thread-safe: guarded by the shard's mutex.
class range_index {
 public:
  using chunk = range_node_pool::chunk;

  range_index() noexcept = default;
  range_index(const range_index&) = delete;
  range_index& operator=(const range_index&) = delete;

  /// Returns whether that many inserts need no more memory, whatever is erased between them. If not, the caller must
  /// `adopt` a chunk of `next_chunk` bytes from `make_chunk`, which needs no lock, and call this again.
  [[nodiscard]] bool ready(std::size_t inserts = 1) const noexcept {
    return pool_.has(inserts, inserts * (height_ + 1) + 1);
  }
  [[nodiscard]] std::size_t next_chunk() const noexcept { return pool_.next_chunk(); }
  [[nodiscard]] static chunk make_chunk(std::size_t bytes) noexcept { return range_node_pool::make_chunk(bytes); }
  void adopt(chunk made) noexcept { pool_.adopt(std::move(made)); }

  /// The place of an entry that overlaps no other.
  class place;
  /// Finds the place for an entry of that range, which is not empty. Returns false if the entry overlaps others, or if
  /// finding out would take longer.
  [[nodiscard]] bool find_alone(peer_id peer, const range& where, place& found) const noexcept;

  /// Inserts an entry. Requires `ready()`. The entry's key must not change while it is in the index.
  void insert(entry* added) noexcept;
  /// Inserts an entry at the place that `find_alone` found for its key. Requires that the index has not changed since.
  void insert(entry* added, peer_id peer, const range& where, place& at) noexcept;

  /// Erases an entry. Requires that it is in this index.
  void erase(entry* gone) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Return the bytes that the index has taken, and how many of them are in use.
  [[nodiscard]] std::size_t bytes() const noexcept { return pool_.bytes(); }
  [[nodiscard]] std::size_t bytes_in_use() const noexcept { return pool_.bytes_out(); }

  /// Calls `stop(entry&)` for the entries of `peer` that overlap `where`, by address, until it returns true. Returns
  /// that entry, or null. `stop` must not change the index.
  template <class F>
  entry* find_overlap(peer_id peer, const range& where, F&& stop) const {
    return find_within({peer, 0, where.end, where.begin}, stop);
  }
  /// As `find_overlap`, for the entries that contain `where`, which is not empty. Skips others that overlap it.
  template <class F>
  entry* find_containing(peer_id peer, const range& where, F&& stop) const {
    return find_within({peer, 0, where.begin + 1, where.end - 1}, stop);
  }
  /// As `find_overlap`, for the entries that begin in `where`.
  template <class F>
  entry* find_beginning(peer_id peer, const range& where, F&& stop) const {
    return find_within({peer, where.begin, where.end, where.begin}, stop);
  }

  /// Calls `each(entry&)` for every entry in order.
  template <class F>
  void for_each(F&& each) const {
    walk_below(root_, height_, each);
  }

  /// Returns whether order, separators, ends and the number of nodes are correct in the whole tree. For tests; O(n).
  [[nodiscard]] bool consistent() const noexcept;

 private:
  // More than any tree has: all but one or two nodes of a level are at least a third full.
  static constexpr std::size_t most_levels = 24;
  static constexpr std::size_t comfortable = 12;  // nodes are merged if both fit in so many slots, which leaves room

  struct new_slot;

  // The path from the root to a leaf: each inner node, and which of its children is next.
  struct path {
    struct step {
      range_inner* node;
      std::size_t at;
    };
    std::array<step, most_levels> steps;
    std::size_t depth = 0;

    [[nodiscard]] step& last() noexcept {
      PINFOLD_ASSERT(depth > 0, "the way has an inner node");
      return steps[depth - 1];
    }
    void push(range_inner* node, std::size_t at) noexcept {
      PINFOLD_ASSERT(depth < most_levels, "no way is longer than the height of a tree");
      steps[depth++] = {node, at};
    }

    /// Returns the key before the leaf: no key in the leaf is less, and no key of an earlier leaf is greater. Returns
    /// `last_key` for the first leaf.
    [[nodiscard]] range_key key_before() const noexcept {
      for (std::size_t i = depth; i-- > 0;)
        if (steps[i].at > 0) return steps[i].node->keys[steps[i].at - 1];
      return last_key;
    }
    /// Returns whether the next leaf, if there is one, belongs to another peer.
    [[nodiscard]] bool last_of(peer_id peer) const noexcept {
      for (std::size_t i = depth; i-- > 0;)
        if (steps[i].at + 1 < steps[i].node->count) return peer_of(steps[i].node->keys[steps[i].at]) != peer;
      return true;
    }
  };

  // Entries of a peer that begin at `from` or later and before `before`, and end behind `after`.
  struct bounds {
    peer_id peer;
    std::uintptr_t from;
    std::uintptr_t before;
    std::uintptr_t after;
    [[nodiscard]] bool have(const range& one) const noexcept {
      return from <= one.begin && one.begin < before && after < one.end;
    }
  };

  template <class F>
  entry* find_within(const bounds& in, F&& stop) const {
    const auto page = in.after >> page_shift;
    leaf_walk walk(*this, in);
    while (const range_leaf* leaf = walk.next()) {
      if (leaf->peer != in.peer) continue;
      for (auto left = leaf->reaching(page, leaf->before(in.before)); left != 0; left &= left - 1) {
        entry* one = leaf->entry_at(static_cast<std::size_t>(std::countr_zero(left)));
        if (in.have(covered_of(*one)) && stop(*one)) return one;
      }
    }
    return nullptr;
  }

  template <bool OnePeer>
  [[nodiscard]] bool find_alone_among(peer_id peer, const range& where, place& found) const noexcept;
  void insert_below(path& way, range_leaf& leaf, const new_slot& slot) noexcept;
  void insert_without_room(path& way, range_leaf& leaf, const new_slot& slot) noexcept;

  // Visits, in order, the leaves that may have such entries.
  class leaf_walk {
   public:
    leaf_walk(const range_index& index, const bounds& in) noexcept
        : low_(key_of(in.peer, in.from)),
          high_(key_of(in.peer, in.before)),
          page_(in.after >> page_shift),
          height_(index.height_),
          root_(index.root_) {
      if (height_ > 0) enter(root_);
    }
    [[nodiscard]] const range_leaf* next() noexcept;

   private:
    struct step {
      const range_inner* node;
      std::uint32_t left;  // a bit for each child to visit
    };
    void enter(const void* node) noexcept;

    const range_key low_;
    const range_key high_;
    const std::uint64_t page_;
    const std::size_t height_;
    const void* root_;
    std::size_t depth_ = 0;
    std::array<step, most_levels> steps_;
  };

  template <class F>
  static void walk_below(const void* node, std::size_t level, F& each) {
    if (node == nullptr) return;
    if (level == 0) {
      const auto& leaf = *static_cast<const range_leaf*>(node);
      for (std::size_t i = 0; i < leaf.count; ++i) each(*leaf.entry_at(i));
    } else {
      const auto& inner = *static_cast<const range_inner*>(node);
      for (std::size_t i = 0; i < inner.count; ++i) walk_below(inner.child[i], level - 1, each);
    }
  }

  void insert_beside(path& way, range_leaf& other, const new_slot& added) noexcept;
  void insert_in_full(path& way, range_leaf& full, const new_slot& added) noexcept;
  static bool insert_balanced(range_inner& above, std::size_t left, const new_slot& added) noexcept;
  void add_node(path& way, range_key key, void* node, std::uint64_t max_end, bool appending) noexcept;
  void add_root(range_key key, void* node, std::uint64_t max_end) noexcept;
  /// Returns whether a search can ignore the peers in the keys.
  [[nodiscard]] bool one_peer(peer_id peer) const noexcept { return !many_peers_ && peer == peer_id{}; }
  [[nodiscard]] range_leaf* leaf_for(peer_id peer, std::uintptr_t begin, path& way) const noexcept;
  [[nodiscard]] range_leaf* leaf_before(path& way) const noexcept;
  [[nodiscard]] range_leaf* leaf_among_equals(path& way, range_leaf& last, const new_slot& added) const noexcept;
  void shrink_leaf(path& way, range_leaf& leaf, std::uint64_t erased_reach) noexcept;
  bool merge_leaf(range_inner& above, std::size_t at) noexcept;
  bool merge_inner(range_inner& above, std::size_t at) noexcept;
  void propagate(path& way) noexcept;
  void lower_root() noexcept;
  struct check;

  void* root_ = nullptr;
  std::size_t height_ = 0;  // levels of inner nodes
  std::size_t size_ = 0;
  bool many_peers_ = false;  // whether there ever was a peer other than 0
  range_node_pool pool_;
};

class range_index::place {
 public:
  place() noexcept {}  // `find_alone` writes most of it

 private:
  friend class range_index;
  path way_;
  range_leaf* leaf_ = nullptr;
  std::size_t at_ = 0;  // in the leaf, if that is of the same peer
};

}  // namespace pinfold::index

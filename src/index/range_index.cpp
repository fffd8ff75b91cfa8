// SPDX-License-Identifier: BSD-3-Clause
#include "index/range_index.hpp"

#include "os/check.hpp"

namespace pinfold::index {

// --- finding

void range_index::leaf_walk::enter(const void* node) noexcept {
  PINFOLD_ASSERT(depth_ < height_, "a walk goes no deeper than the inner nodes");
  const auto& inner = *static_cast<const range_inner*>(node);
  auto left = inner.reaching(page_) & ((std::uint32_t{2} << inner.before(high_)) - 1);
  // Seldom more than one child. Skips children with lesser keys, except the last, which may end with the first matches.
  if ((left & (left - 1)) != 0) left &= ~std::uint32_t{0} << inner.before(low_);
  steps_[depth_++] = {&inner, left};
}

const range_leaf* range_index::leaf_walk::next() noexcept {
  if (height_ == 0) return static_cast<const range_leaf*>(std::exchange(root_, nullptr));
  while (depth_ > 0) {
    step& last = steps_[depth_ - 1];
    if (last.left == 0) {
      --depth_;
      continue;
    }
    const void* child = last.node->child[static_cast<std::size_t>(std::countr_zero(last.left))];
    last.left &= last.left - 1;
    if (depth_ == height_) return static_cast<const range_leaf*>(child);
    enter(child);
  }
  return nullptr;
}

// Answers both questions about a new entry in one descent: what it overlaps, and where it goes.
bool range_index::find_alone(peer_id peer, const range& where, place& found) const noexcept {
  PINFOLD_ASSERT(where.begin < where.end, "an entry covers at least a byte");
  return one_peer(peer) ? find_alone_among<true>(peer, where, found) : find_alone_among<false>(peer, where, found);
}

template <bool OnePeer>
bool range_index::find_alone_among(peer_id peer, const range& where, place& found) const noexcept {
  const auto key = [&](std::uintptr_t at) {
    if constexpr (OnePeer) return at;
    if constexpr (!OnePeer) return key_of(peer, at);
  };
  using key_type = decltype(key(0));
  void* node = root_;
  const auto page = where.begin >> page_shift;
  const auto height = height_;
  for (std::size_t level = 0; level < height; ++level) {
    auto* inner = static_cast<range_inner*>(node);
    const auto at = inner->child_for(key(where.begin));
    PINFOLD_ASSERT(at < inner->count, "a key leads to a child in use");
    if (inner->reached_before(at, page)) return false;
    if (at + 1 < inner->count && static_cast<key_type>(inner->keys[at]) < key(where.end)) return false;
    found.way_.steps[level] = {inner, at};
    node = inner->child[at];
    if (level + 1 == height) range_leaf::prefetch(node);
  }
  found.way_.depth = height;
  auto* leaf = found.leaf_ = static_cast<range_leaf*>(node);
  if (leaf == nullptr || leaf->peer != peer) return true;
  const auto at = found.at_ = leaf->position_for(where.begin);
  if (at > 0 && leaf->begin[at - 1] == where.begin) return false;
  if (at < leaf->count && leaf->begin[at] < where.end) return false;
  for (auto i = at; i-- > 0;) {
    if (leaf->page_after_slot(i) > page) {
      if (covered_of(*leaf->entry_at(i)).overlaps(where)) return false;
    } else if (leaf->ends_sorted) {
      break;
    }
  }
  return true;
}

// --- inserting

struct range_index::new_slot {
  peer_id peer;
  range covered;
  std::uint64_t word;

  explicit new_slot(entry* one) noexcept : new_slot(one, peer_of(*one), covered_of(*one)) {}
  new_slot(entry* one, peer_id its_peer, const range& where) noexcept
      : peer(its_peer), covered(where), word(range_leaf::word_of(one, where)) {}

  [[nodiscard]] bool goes_before(const range_leaf& leaf, std::size_t at) const noexcept {
    if (leaf.begin[at] != covered.begin) return covered.begin < leaf.begin[at];
    return covered.end < covered_of(*leaf.entry_at(at)).end;
  }
  [[nodiscard]] std::size_t place_in(const range_leaf& leaf) const noexcept {
    auto at = leaf.position_for(covered.begin);
    while (at > 0 && goes_before(leaf, at - 1)) --at;
    return at;
  }
  void insert_into(range_leaf& leaf) const noexcept { leaf.insert(place_in(leaf), covered.begin, word); }
};

void range_index::insert(entry* added) noexcept {
  const new_slot slot(added);
  ++size_;
  if (slot.peer != peer_id{}) many_peers_ = true;
  if (root_ == nullptr) {
    auto* first = pool_.take_leaf(slot.peer);
    slot.insert_into(*first);
    root_ = first;
    return;
  }
  path way;
  range_leaf* leaf = leaf_for(slot.peer, slot.covered.begin, way);
  if (way.key_before() == key_of(slot.peer, slot.covered.begin)) leaf = leaf_among_equals(way, *leaf, slot);
  insert_below(way, *leaf, slot);
}

void range_index::insert(entry* added, peer_id peer, const range& where, place& at) noexcept {
  if (at.leaf_ == nullptr) return insert(added);
  PINFOLD_ASSERT(at.way_.depth == height_, "the place was found in the tree as it is");
  PINFOLD_ASSERT(peer == peer_of(*added) && where == covered_of(*added),
                 "the place was found for the key of the entry");
  const new_slot slot(added, peer, where);
  ++size_;
  if (slot.peer != peer_id{}) many_peers_ = true;
  const auto reach = page_after(where.end);
  for (std::size_t i = 0; i < at.way_.depth; ++i) {
    auto& [node, child] = at.way_.steps[i];
    if (many_peers_) {
      node->raise_max_end(child, reach);
    } else {
      node->raise_max_end_alone(child, reach);
    }
  }
  range_leaf& leaf = *at.leaf_;
  if (leaf.peer == peer && leaf.count < range_leaf::capacity) [[likely]]
    return leaf.insert_alone(at.at_, where.begin, slot.word);
  insert_without_room(at.way_, leaf, slot);
}

void range_index::insert_below(path& way, range_leaf& leaf, const new_slot& slot) noexcept {
  const auto reach = page_after(slot.covered.end);
  for (std::size_t i = 0; i < way.depth; ++i) way.steps[i].node->raise_max_end(way.steps[i].at, reach);
  if (leaf.peer == slot.peer && leaf.count < range_leaf::capacity) return slot.insert_into(leaf);
  insert_without_room(way, leaf, slot);
}

void range_index::insert_without_room(path& way, range_leaf& leaf, const new_slot& slot) noexcept {
  if (leaf.peer != slot.peer) return insert_beside(way, leaf, slot);
  insert_in_full(way, leaf, slot);
}

// Returns the leaf for an entry whose key separates leaves: the leaves before that key may end with entries that have
// the same begin and a later end.
range_leaf* range_index::leaf_among_equals(path& way, range_leaf& last, const new_slot& added) const noexcept {
  range_leaf* leaf = &last;
  for (path back = way; back.key_before() == key_of(added.peer, added.covered.begin); way = back) {
    if (leaf->peer == added.peer && added.place_in(*leaf) > 0) break;
    range_leaf* before = leaf_before(back);
    if (before->peer != added.peer || !added.goes_before(*before, before->count - 1)) break;
    leaf = before;
  }
  return leaf;
}

// Makes a leaf before or behind that of another peer. The key between two peers has begin 0, so that all later entries
// of the second peer go to its own leaves.
void range_index::insert_beside(path& way, range_leaf& other, const new_slot& added) noexcept {
  PINFOLD_ASSERT(other.peer != added.peer, "only a leaf of another peer gets a neighbour");
  auto* fresh = pool_.take_leaf(added.peer);
  added.insert_into(*fresh);
  const bool behind = other.peer < added.peer;
  range_leaf& first = behind ? other : *fresh;
  range_leaf& second = behind ? *fresh : other;
  if (way.depth == 0) {
    root_ = &first;
  } else {
    auto& [above, at] = way.last();
    above->child[at] = &first;
    static_cast<void>(above->set_max_end(at, first.max_end()));
  }
  add_node(way, key_of(second.peer, 0), &second, second.max_end(), false);
}

void range_index::insert_in_full(path& way, range_leaf& full, const new_slot& added) noexcept {
  PINFOLD_ASSERT(full.count == range_leaf::capacity, "a leaf with room is not split");
  const bool appending = added.place_in(full) == range_leaf::capacity && way.last_of(added.peer);
  if (!appending && way.depth > 0) {
    auto& [above, at] = way.last();
    if (at > 0 && insert_balanced(*above, at - 1, added)) return;
    if (at + 1 < above->count && insert_balanced(*above, at, added)) return;
  }
  auto* fresh = pool_.take_leaf(full.peer);
  if (appending) {
    added.insert_into(*fresh);
  } else {
    full.move_to(*fresh, range_leaf::capacity / 2);
    added.insert_into(added.goes_before(*fresh, 0) ? full : *fresh);
  }
  if (way.depth > 0) static_cast<void>(way.last().node->set_max_end(way.last().at, full.max_end()));
  add_node(way, key_of(fresh->peer, fresh->begin[0]), fresh, fresh->max_end(), appending);
}

// Makes room by moving slots between a full leaf and a neighbour, if the neighbour has enough room.
bool range_index::insert_balanced(range_inner& above, std::size_t left, const new_slot& added) noexcept {
  PINFOLD_ASSERT(left + 1 < above.count, "a leaf is balanced with a neighbour under the same node");
  range_leaf& low = above.leaf_at(left);
  range_leaf& high = above.leaf_at(left + 1);
  if (low.peer != high.peer || low.count + high.count > range_leaf::capacity + comfortable) return false;
  const auto half = (low.count + high.count) / 2;
  if (low.count > half) {
    low.move_to(high, low.count - half);
  } else {
    low.move_from(high, half - low.count);
  }
  above.keys[left] = key_of(high.peer, high.begin[0]);
  added.insert_into(added.goes_before(high, 0) ? low : high);
  static_cast<void>(above.set_max_end(left, low.max_end()));
  static_cast<void>(above.set_max_end(left + 1, high.max_end()));
  return true;
}

// Inserts a node behind the last node of `way`, and splits full nodes above. Appending leaves nodes full.
void range_index::add_node(path& way, range_key key, void* node, std::uint64_t max_end, bool appending) noexcept {
  for (; way.depth > 0; --way.depth) {
    auto& [above, at] = way.last();
    if (above->count < range_inner::capacity) return above->insert(at + 1, key, node, max_end);
    auto* fresh = pool_.take_inner(node, max_end);
    if (!appending || at + 1 < range_inner::capacity) {
      constexpr auto half = range_inner::capacity / 2;
      const auto between = above->split(half, *fresh);
      if (at < half) {
        above->insert(at + 1, key, node, max_end);
      } else {
        fresh->insert(at + 1 - half, key, node, max_end);
      }
      key = between;
    }
    if (way.depth > 1) {
      const auto& higher = way.steps[way.depth - 2];
      static_cast<void>(higher.node->set_max_end(higher.at, above->max_end_of_all()));
    }
    node = fresh;
    max_end = fresh->max_end_of_all();
  }
  add_root(key, node, max_end);
}

void range_index::add_root(range_key key, void* node, std::uint64_t max_end) noexcept {
  PINFOLD_ASSERT(root_ != nullptr, "a new root has the old one as its first child");
  const auto reach =
      height_ == 0 ? static_cast<range_leaf*>(root_)->max_end() : static_cast<range_inner*>(root_)->max_end_of_all();
  auto* top = pool_.take_inner(root_, reach);
  top->insert(1, key, node, max_end);
  root_ = top;
  ++height_;
  PINFOLD_INVARIANT(height_ <= most_levels, "a range index has at most most_levels levels");
}

// --- the path to a leaf

range_leaf* range_index::leaf_for(peer_id peer, std::uintptr_t begin, path& way) const noexcept {
  PINFOLD_ASSERT(root_ != nullptr, "an index without entries has no leaf");
  void* node = root_;
  const auto height = height_;
  const bool narrow = one_peer(peer);
  for (std::size_t level = 0; level < height; ++level) {
    auto* inner = static_cast<range_inner*>(node);
    const auto at = narrow ? inner->child_for(begin) : inner->child_for(key_of(peer, begin));
    way.steps[level] = {inner, at};
    node = inner->child[at];
  }
  way.depth = height;
  return static_cast<range_leaf*>(node);
}

range_leaf* range_index::leaf_before(path& way) const noexcept {
  while (way.depth > 0 && way.last().at == 0) --way.depth;
  PINFOLD_INVARIANT(way.depth > 0, "an entry to erase must be in the index");
  void* node = way.last().node->child[--way.last().at];
  while (way.depth < height_) {
    auto* inner = static_cast<range_inner*>(node);
    way.push(inner, inner->count - 1);
    node = inner->child[inner->count - 1];
  }
  return static_cast<range_leaf*>(node);
}

}  // namespace pinfold::index

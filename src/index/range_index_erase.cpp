// SPDX-License-Identifier: BSD-3-Clause
// Erasing entries from a range index, and merging nodes that become sparse.
#include "index/range_index.hpp"
#include "os/check.hpp"

namespace pinfold::index {

void range_index::erase(entry* gone) noexcept {
  PINFOLD_INVARIANT(root_ != nullptr, "an entry to erase must be in the index");
  const auto begin = covered_of(*gone).begin;
  const auto word = range_leaf::word_of(gone);
  path way;
  range_leaf* leaf = leaf_for(peer_of(*gone), begin, way);
  auto at = leaf->position_for(begin);
  while (at == 0 || leaf->word[at - 1] != word) {  // earlier entries have the same begin
    if (at > 0) {
      --at;
    } else {
      leaf = leaf_before(way);
      at = leaf->count;
    }
  }
  const auto reach = leaf->page_after_slot(--at);
  PINFOLD_ASSERT(size_ > 0 && leaf->peer == peer_of(*gone), "the entry is one of the index, in a leaf of its peer");
  leaf->remove(at);
  --size_;
  shrink_leaf(way, *leaf, reach);
}

void range_index::shrink_leaf(path& way, range_leaf& leaf, std::uint64_t erased_reach) noexcept {
  if (way.depth == 0) {
    if (leaf.count > 0) return;
    pool_.put(&leaf);
    root_ = nullptr;
    return;
  }
  auto& [above, at] = way.last();
  bool changed = true;
  if (leaf.count == 0) {
    pool_.put(&leaf);
    above->remove(at);
  } else {
    changed = above->max_end[at] == erased_reach && above->set_max_end(at, leaf.max_end());
    if (leaf.count <= range_leaf::capacity / 2 && merge_leaf(*above, at)) changed = true;
  }
  if (changed) propagate(way);
}

bool range_index::merge_leaf(range_inner& above, std::size_t at) noexcept {
  for (const auto right : {at, at + 1}) {
    if (right == 0 || right == above.count) continue;
    range_leaf& low = above.leaf_at(right - 1);
    range_leaf& high = above.leaf_at(right);
    PINFOLD_ASSERT(low.count > 0 && high.count > 0, "no leaf stays in the tree without entries");
    if (low.peer != high.peer || low.count + high.count > comfortable) continue;
    low.move_from(high, high.count);
    static_cast<void>(above.set_max_end(right - 1, std::max(above.max_end[right - 1], above.max_end[right])));
    pool_.put(&high);
    above.remove(right);
    return true;
  }
  return false;
}

bool range_index::merge_inner(range_inner& above, std::size_t at) noexcept {
  for (const auto right : {at, at + 1}) {
    if (right == 0 || right == above.count) continue;
    range_inner& low = above.inner_at(right - 1);
    range_inner& high = above.inner_at(right);
    if (low.count + high.count > comfortable) continue;
    low.append(high, above.keys[right - 1]);
    static_cast<void>(above.set_max_end(right - 1, std::max(above.max_end[right - 1], above.max_end[right])));
    pool_.put(&high);
    above.remove(right);
    return true;
  }
  return false;
}

// Propagates upwards the changes in the last node of `way`.
void range_index::propagate(path& way) noexcept {
  while (way.depth > 1) {
    range_inner* node = way.last().node;
    --way.depth;
    auto& [above, at] = way.last();
    if (node->count == 0) {
      pool_.put(node);
      above->remove(at);
      continue;
    }
    const bool changed = above->set_max_end(at, node->max_end_of_all());
    const bool merged = node->count <= comfortable / 2 && merge_inner(*above, at);
    if (!changed && !merged) return;
  }
  lower_root();
}

void range_index::lower_root() noexcept {
  while (height_ > 0 && static_cast<range_inner*>(root_)->count <= 1) {
    auto* top = static_cast<range_inner*>(root_);
    root_ = top->count == 0 ? nullptr : top->child[0];
    height_ = root_ == nullptr ? 0 : height_ - 1;
    pool_.put(top);
  }
}

}  // namespace pinfold::index

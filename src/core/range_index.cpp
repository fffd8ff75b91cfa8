// SPDX-License-Identifier: BSD-3-Clause
#include "core/range_index.hpp"

#include <tuple>

namespace pinfold::core {

namespace {

// Equal ranges are told apart by when they were inserted, so that `erase` finds the very entry.
auto key(const entry& of) noexcept { return std::tuple(of.peer, of.covered.begin, of.covered.end, of.sequence); }

bool before(const entry& a, const entry& b) noexcept { return key(a) < key(b); }

// splitmix64 (Steele, Lea, Flood 2014): priorities need only be spread, not unpredictable.
std::uint32_t priority(const entry& of) noexcept {
  std::uint64_t value = of.sequence * 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<std::uint32_t>(value >> 32U);
}

auto furthest(const entry& of) noexcept { return std::tuple(of.furthest_peer, of.furthest_end); }

void update(entry& node) noexcept {
  auto most = std::tuple(node.peer, node.covered.end);
  for (const entry* child : {node.left, node.right})
    if (child != nullptr && furthest(*child) > most) most = furthest(*child);
  std::tie(node.furthest_peer, node.furthest_end) = most;
}

// Splits `node`'s subtree into what lies before `at` and what lies after it.
void split(entry* node, const entry& at, entry*& low, entry*& high) noexcept {
  if (node == nullptr) {
    low = high = nullptr;
  } else if (before(*node, at)) {
    low = node;
    split(node->right, at, node->right, high);
    update(*node);
  } else {
    high = node;
    split(node->left, at, low, node->left);
    update(*node);
  }
}

entry* merge(entry* low, entry* high) noexcept {
  if (low == nullptr) return high;
  if (high == nullptr) return low;
  if (priority(*low) > priority(*high)) {
    low->right = merge(low->right, high);
    update(*low);
    return low;
  }
  high->left = merge(low, high->left);
  update(*high);
  return high;
}

void insert_below(entry*& node, entry* added) noexcept {
  if (node == nullptr) {
    node = added;
  } else if (priority(*added) > priority(*node)) {
    split(node, *added, added->left, added->right);
    node = added;
  } else {
    insert_below(before(*added, *node) ? node->left : node->right, added);
  }
  update(*node);
}

void erase_below(entry*& node, entry* gone) noexcept {
  PINFOLD_INVARIANT(node != nullptr, "an entry to erase must be in the index");
  if (node == gone) {
    node = merge(gone->left, gone->right);
    return;
  }
  erase_below(before(*gone, *node) ? node->left : node->right, gone);
  update(*node);
}

bool consistent_below(const entry* node) noexcept {
  if (node == nullptr) return true;
  for (const entry* child : {node->left, node->right})
    if (child != nullptr && priority(*child) > priority(*node)) return false;
  if (node->left != nullptr && !before(*node->left, *node)) return false;
  if (node->right != nullptr && !before(*node, *node->right)) return false;
  entry copy_of_ends;
  copy_of_ends.peer = node->peer;
  copy_of_ends.covered = node->covered;
  copy_of_ends.left = node->left;
  copy_of_ends.right = node->right;
  update(copy_of_ends);
  return furthest(copy_of_ends) == furthest(*node) && consistent_below(node->left) && consistent_below(node->right);
}

}  // namespace

void range_index::insert(entry* added) noexcept {
  added->left = added->right = nullptr;
  added->sequence = ++inserted_;
  insert_below(root_, added);
  ++size_;
}

void range_index::erase(entry* gone) noexcept {
  erase_below(root_, gone);
  gone->left = gone->right = nullptr;
  --size_;
}

bool range_index::consistent() const noexcept { return consistent_below(root_); }

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The nodes of the range index: their layout, and how they are searched.
#pragma once

#include "index/record_page.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::index {

/// The key of an entry. Only these functions know where it is stored.
[[nodiscard]] inline peer_id peer_of(const entry& one) noexcept { return one.peer(); }
[[nodiscard]] inline range covered_of(const entry& one) noexcept { return one.covered(); }

/// Peer and begin as one number.
__extension__ typedef unsigned __int128 range_key;
inline constexpr range_key last_key = ~range_key{0};

[[nodiscard]] constexpr range_key key_of(peer_id peer, std::uintptr_t begin) noexcept {
  return range_key{peer.value} << 64U | begin;
}
[[nodiscard]] constexpr peer_id peer_of(range_key key) noexcept { return {static_cast<std::uint64_t>(key >> 64U)}; }

inline constexpr unsigned page_shift = 12;

/// Returns the number of the first page that begins at or after `end`.
[[nodiscard]] constexpr std::uint64_t page_after(std::uintptr_t end) noexcept {
  const bool within = (end & ((std::uintptr_t{1} << page_shift) - 1)) != 0;
  return (end >> page_shift) + (within ? 1 : 0);
}

/// Returns how many of 15 sorted values are less than `key`, without a branch.
template <class T, class Key>
[[nodiscard]] constexpr std::size_t count_before(const std::array<T, 15>& sorted, Key key) noexcept {
  const auto less = [&](std::size_t i) { return std::size_t{static_cast<Key>(sorted[i]) < key}; };
  const auto group = 4 * (less(3) + less(7) + less(11));
  return group + less(group) + less(group + 1) + less(group + 2);
}

/// Up to 15 entries of one peer, ordered by begin, then end. A slot has the begin and a word: the entry's address, and
/// above it the number of pages that the range spans, counted from the page of its begin. So a search reads hardly any
/// entry but the matching ones.
///
/// `ends_sorted`: end pages never decrease from slot to slot (true while no range nests), so the last slot before a key
/// bounds all earlier ones. Conservative: may be false for a sorted node.
struct alignas(64) range_leaf {
  static constexpr std::size_t capacity = 15;
  static constexpr std::uintptr_t no_begin = UINTPTR_MAX;  // no range begins there

  peer_id peer;
  std::uint32_t count = 0;
  bool ends_sorted = true;
  std::array<std::uintptr_t, capacity> begin;  // `no_begin` from `count` on
  std::array<std::uint64_t, capacity> word;

  explicit range_leaf(peer_id of) noexcept : peer(of) { begin.fill(no_begin); }

  /// Fetches the leaf's cache lines at once: a search reads most of them, one after the other.
  static void prefetch(const void* leaf) noexcept {
    for (std::size_t line = 0; line < sizeof(range_leaf); line += 64)
      __builtin_prefetch(static_cast<const std::byte*>(leaf) + line);
  }

  [[nodiscard]] static std::uint64_t word_of(entry* one) noexcept { return word_of(one, covered_of(*one)); }
  [[nodiscard]] static std::uint64_t word_of(entry* one, const range& covered) noexcept {
    const auto pages = page_after(covered.end) - (covered.begin >> page_shift);
    PINFOLD_ASSERT((reinterpret_cast<std::uintptr_t>(one) >> address_bits) == 0,
                   "an entry's address leaves room for its pages");
    return reinterpret_cast<std::uintptr_t>(one) | std::min(pages, far_pages) << address_bits;
  }
  [[nodiscard]] entry* entry_at(std::size_t i) const noexcept {
    PINFOLD_ASSERT(i < count, "only a slot in use has an entry");
    return reinterpret_cast<entry*>(word[i] & ((std::uint64_t{1} << address_bits) - 1));
  }

  /// Returns the page after the range in slot `i`. Reads the entry only if the range is very long.
  [[nodiscard]] std::uint64_t page_after_slot(std::size_t i) const noexcept {
    const auto reach = word[i] >> address_bits;
    return reach == far_pages ? page_after(covered_of(*entry_at(i)).end) : (begin[i] >> page_shift) + reach;
  }
  /// Returns the page after all ranges of the leaf.
  [[nodiscard]] std::uint64_t max_end() const noexcept {
    if (ends_sorted) return count == 0 ? 0 : page_after_slot(count - 1);
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, page_after_slot(i));
    return most;
  }
  [[nodiscard]] bool are_ends_sorted() const noexcept {
    bool yes = true;
    for (std::size_t i = 1; i < count; ++i) yes = yes && page_after_slot(i - 1) <= page_after_slot(i);
    return yes;
  }
  /// Returns a bit for each of the first `slots` slots that may end after the start of page `from`.
  [[nodiscard]] std::uint32_t reaching(std::uint64_t from, std::size_t slots) const noexcept {
    PINFOLD_ASSERT(slots <= count, "only slots in use are searched");
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < slots; ++i) {
      const auto reach = word[i] >> address_bits;
      const bool may = reach == far_pages || (begin[i] >> page_shift) + reach > from;
      found |= std::uint32_t{may} << i;
    }
    return found;
  }

  /// Returns how many ranges begin before `end`.
  [[nodiscard]] std::size_t before(std::uintptr_t end) const noexcept { return count_before(begin, end); }
  /// Returns the position behind all ranges that begin at `at` or before.
  [[nodiscard]] std::size_t position_for(std::uintptr_t at) const noexcept { return before(at + 1); }

  /// Inserts a range that overlaps none in the leaf; `ends_sorted` stays as it is.
  void insert_alone(std::size_t at, std::uintptr_t first, std::uint64_t what) noexcept {
    PINFOLD_ASSERT(at <= count && count < capacity, "a slot goes into a leaf with room");
    PINFOLD_ASSERT(at == 0 || begin[at - 1] <= first, "no slot before the new one begins later");
    PINFOLD_ASSERT(at == count || first <= begin[at], "no slot behind the new one begins earlier");
    for (std::size_t i = count; i > at; --i) {
      begin[i] = begin[i - 1];
      word[i] = word[i - 1];
    }
    begin[at] = first;
    word[at] = what;
    ++count;
  }
  void insert(std::size_t at, std::uintptr_t first, std::uint64_t what) noexcept {
    insert_alone(at, first, what);
    const auto after = page_after_slot(at);
    if (at > 0 && page_after_slot(at - 1) > after) ends_sorted = false;
    if (at + 1 < count && page_after_slot(at + 1) < after) ends_sorted = false;
  }
  void remove(std::size_t at) noexcept {
    PINFOLD_ASSERT(at < count, "only a slot in use is removed");
    --count;
    for (std::size_t i = at; i < count; ++i) {
      begin[i] = begin[i + 1];
      word[i] = word[i + 1];
    }
    begin[count] = no_begin;
    if (!ends_sorted) recompute_ends_sorted();
  }
  /// Moves the last `some` slots of this leaf in front of those of `right`.
  void move_to(range_leaf& right, std::size_t some) noexcept {
    PINFOLD_ASSERT(some <= count && right.count + some <= capacity,
                   "the leaf has so many slots, the right one room for them");
    PINFOLD_ASSERT(peer == right.peer, "a leaf has slots of one peer");
    std::copy_backward(right.begin.data(), right.begin.data() + right.count, right.begin.data() + right.count + some);
    std::copy_backward(right.word.data(), right.word.data() + right.count, right.word.data() + right.count + some);
    count -= static_cast<std::uint32_t>(some);
    right.count += static_cast<std::uint32_t>(some);
    std::copy_n(begin.data() + count, some, right.begin.data());
    std::copy_n(word.data() + count, some, right.word.data());
    std::fill_n(begin.data() + count, some, no_begin);
    update_ends_sorted(right, right, some);
  }
  /// Moves the first `some` slots of `right` behind those of this leaf.
  void move_from(range_leaf& right, std::size_t some) noexcept {
    PINFOLD_ASSERT(some <= right.count && count + some <= capacity,
                   "the right leaf has so many slots, this one room for them");
    PINFOLD_ASSERT(peer == right.peer, "a leaf has slots of one peer");
    std::copy_n(right.begin.data(), some, begin.data() + count);
    std::copy_n(right.word.data(), some, word.data() + count);
    count += static_cast<std::uint32_t>(some);
    std::copy(right.begin.data() + some, right.begin.data() + right.count, right.begin.data());
    std::copy(right.word.data() + some, right.word.data() + right.count, right.word.data());
    right.count -= static_cast<std::uint32_t>(some);
    std::fill_n(right.begin.data() + right.count, some, no_begin);
    update_ends_sorted(right, *this, count - some);
  }

 private:
  static constexpr unsigned address_bits = 48;
  static constexpr std::uint64_t far_pages = 0xffff;  // or more

  void recompute_ends_sorted() noexcept { ends_sorted = are_ends_sorted(); }
  /// Updates `ends_sorted` after slots moved between this leaf and `right`: `taker` now has them from, or up to, `at`.
  void update_ends_sorted(range_leaf& right, range_leaf& taker, std::size_t at) noexcept {
    if (!ends_sorted || !right.ends_sorted) {
      recompute_ends_sorted();
      right.recompute_ends_sorted();
    } else if (at > 0 && at < taker.count) {
      taker.ends_sorted = taker.page_after_slot(at - 1) <= taker.page_after_slot(at);
    }
  }
};
static_assert(sizeof(range_leaf) == 256);

/// Up to 16 nodes of the level below. No key before child i + 1 is greater than `keys[i]`, and no key from that child
/// on is less.
struct alignas(64) range_inner {
  static constexpr std::size_t capacity = 16;

  std::array<range_key, capacity - 1> keys;     // `last_key` from `count` - 1 on
  std::array<std::uint64_t, capacity> max_end;  // the page after all ranges of the child, 0 from `count` on
  std::array<void*, capacity> child;
  std::uint32_t count = 0;
  bool ends_sorted = true;  // as in `range_leaf`, for `max_end`

  range_inner(void* first, std::uint64_t first_max_end) noexcept : count(1) {
    keys.fill(last_key);
    max_end.fill(0);
    child[0] = first;
    max_end[0] = first_max_end;
  }

  [[nodiscard]] range_leaf& leaf_at(std::size_t i) const noexcept { return *static_cast<range_leaf*>(child[i]); }
  [[nodiscard]] range_inner& inner_at(std::size_t i) const noexcept { return *static_cast<range_inner*>(child[i]); }

  /// Returns how many keys are less than `key`.
  [[nodiscard]] std::size_t before(range_key key) const noexcept { return count_before(keys, key); }
  /// Returns the last child that may have `key`.
  [[nodiscard]] std::size_t child_for(range_key key) const noexcept { return before(key + 1); }
  /// As above, when peer 0 is the only peer.
  [[nodiscard]] std::size_t child_for(std::uintptr_t begin) const noexcept { return count_before(keys, begin + 1); }

  [[nodiscard]] bool are_ends_sorted() const noexcept {
    return std::is_sorted(max_end.begin(), max_end.begin() + static_cast<std::ptrdiff_t>(count));
  }
  /// Returns whether a child before `at` ends after the start of page `from`.
  [[nodiscard]] bool reached_before(std::size_t at, std::uint64_t from) const noexcept {
    if (at == 0) return false;
    if (ends_sorted) return max_end[at - 1] > from;
    return std::any_of(max_end.begin(), max_end.begin() + static_cast<std::ptrdiff_t>(at),
                       [&](std::uint64_t one) { return one > from; });
  }
  /// Raises the end of a child to at least `page`.
  void raise_max_end(std::size_t at, std::uint64_t page) noexcept {
    PINFOLD_ASSERT(at < count, "only a child in use reaches anywhere");
    if (max_end[at] >= page) return;
    max_end[at] = page;
    if (at + 1 < count && max_end[at + 1] < page) ends_sorted = false;
  }
  /// As `raise_max_end`, for a range that overlaps no other. Requires that all children are of one peer.
  void raise_max_end_alone(std::size_t at, std::uint64_t page) noexcept {
    PINFOLD_ASSERT(at < count, "only a child in use reaches anywhere");
    if (max_end[at] < page) max_end[at] = page;
  }
  /// Sets the end of a child. Returns whether that is a change.
  bool set_max_end(std::size_t at, std::uint64_t page) noexcept {
    PINFOLD_ASSERT(at < count, "only a child in use reaches anywhere");
    if (max_end[at] == page) return false;
    max_end[at] = page;
    check_neighbours(at);
    return true;
  }

  /// Returns a bit for each child that ends after the start of page `from`.
  [[nodiscard]] std::uint32_t reaching(std::uint64_t from) const noexcept {
    const auto from_four = [&](std::size_t i) {
      const auto bit = [&](std::size_t j) { return std::uint32_t{from < max_end[i + j]} << j; };
      return (bit(0) | bit(1) | bit(2) | bit(3)) << i;
    };
    return from_four(0) | from_four(4) | from_four(8) | from_four(12);
  }
  [[nodiscard]] std::uint64_t max_end_of_all() const noexcept {
    if (ends_sorted && count > 0) return max_end[count - 1];
    return *std::max_element(max_end.begin(), max_end.end());
  }

  /// Inserts a child behind at least one other.
  void insert(std::size_t at, range_key key, void* what, std::uint64_t its_max_end) noexcept {
    PINFOLD_ASSERT(at > 0 && at <= count && count < capacity, "a child goes behind another of a node with room");
    PINFOLD_ASSERT((at == 1 || keys[at - 2] <= key) && (at == count || key <= keys[at - 1]), "the keys are in order");
    std::copy_backward(keys.data() + at - 1, keys.data() + count - 1, keys.data() + count);
    std::copy_backward(max_end.data() + at, max_end.data() + count, max_end.data() + count + 1);
    std::copy_backward(child.data() + at, child.data() + count, child.data() + count + 1);
    keys[at - 1] = key;
    max_end[at] = its_max_end;
    child[at] = what;
    ++count;
    check_neighbours(at);
  }
  void remove(std::size_t at) noexcept {
    PINFOLD_ASSERT(at < count, "only a child in use is removed");
    const auto key = at == 0 ? 0 : at - 1;
    std::copy(max_end.data() + at + 1, max_end.data() + count, max_end.data() + at);
    std::copy(child.data() + at + 1, child.data() + count, child.data() + at);
    max_end[--count] = 0;
    if (count == 0) return;
    std::copy(keys.data() + key + 1, keys.data() + count, keys.data() + key);
    keys[count - 1] = last_key;
    if (!ends_sorted) recompute_ends_sorted();
  }
  /// Moves the children from `at` on, at least one, to `fresh`. Returns the key between the two nodes.
  range_key split(std::size_t at, range_inner& fresh) noexcept {
    PINFOLD_ASSERT(at > 0 && at < count, "both nodes keep a child");
    const auto between = keys[at - 1];
    fresh.count = count - static_cast<std::uint32_t>(at);
    std::copy(keys.data() + at, keys.data() + count - 1, fresh.keys.data());
    std::copy(max_end.data() + at, max_end.data() + count, fresh.max_end.data());
    std::copy(child.data() + at, child.data() + count, fresh.child.data());
    std::fill(keys.data() + at - 1, keys.data() + count - 1, last_key);
    std::fill(max_end.data() + at, max_end.data() + count, 0);
    count = static_cast<std::uint32_t>(at);
    recompute_ends_sorted();
    fresh.recompute_ends_sorted();
    return between;
  }
  /// Appends the children of `right`, which begin at `key`.
  void append(const range_inner& right, range_key key) noexcept {
    PINFOLD_ASSERT(count > 0 && right.count > 0 && count + right.count <= capacity,
                   "the children of both nodes fit into one");
    keys[count - 1] = key;
    std::copy_n(right.keys.data(), right.count - 1, keys.data() + count);
    std::copy_n(right.max_end.data(), right.count, max_end.data() + count);
    std::copy_n(right.child.data(), right.count, child.data() + count);
    count += right.count;
    recompute_ends_sorted();
  }

 private:
  void recompute_ends_sorted() noexcept { ends_sorted = are_ends_sorted(); }
  void check_neighbours(std::size_t at) noexcept {
    if (!ends_sorted) return recompute_ends_sorted();
    ends_sorted = (at == 0 || max_end[at - 1] <= max_end[at]) && (at + 1 >= count || max_end[at] <= max_end[at + 1]);
  }
};
static_assert(sizeof(range_inner) == 2 * sizeof(range_leaf));

}  // namespace pinfold::index

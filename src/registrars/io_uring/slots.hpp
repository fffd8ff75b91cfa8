// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Tracks the free and the used slots of a buffer table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace pinfold::uring {

/// Consecutive slots. Not thread-safe.
struct run {
  unsigned first;
  unsigned count;  ///< 0: none
};

/// A set of slots, one bit each. Not thread-safe.
class slot_set {
 public:
  explicit slot_set(unsigned slots) : size_(slots), words_((slots + 63) / 64, 0) {}

  [[nodiscard]] unsigned size() const noexcept { return size_; }
  [[nodiscard]] bool contains(unsigned slot) const noexcept { return (words_[slot / 64] >> slot % 64 & 1U) != 0; }

  void insert(const run& all) noexcept {
    for (unsigned i = 0; i < all.count; ++i) words_[(all.first + i) / 64] |= bit(all.first + i);
  }
  void erase(const run& all) noexcept {
    for (unsigned i = 0; i < all.count; ++i) words_[(all.first + i) / 64] &= ~bit(all.first + i);
  }

  /// Returns the first slot from `from` on that is in the set (`inside`) or not in it; `size()` if there is none.
  [[nodiscard]] unsigned next(unsigned from, bool inside) const noexcept {
    std::uint64_t mask = ~std::uint64_t{0} << from % 64;
    for (std::size_t at = from / 64; at < words_.size(); ++at, mask = ~std::uint64_t{0}) {
      const std::uint64_t found = (inside ? words_[at] : ~words_[at]) & mask;
      if (found != 0)
        return std::min(size_, static_cast<unsigned>(at * 64) + static_cast<unsigned>(std::countr_zero(found)));
    }
    return size_;
  }

 private:
  static constexpr std::uint64_t bit(unsigned slot) noexcept { return std::uint64_t{1} << slot % 64; }

  unsigned size_;
  std::vector<std::uint64_t> words_;
};

/// Hands out runs of consecutive slots, because one system call can fill such a run. Starts each search behind the last
/// run, so that a slot rests as long as possible before it is reused. Thread-safe.
class slot_table {
 public:
  explicit slot_table(unsigned slots) : free_(slots), used_(slots), left_(slots), longest_(slots) {
    free_.insert({0, slots});
  }

  /// Takes the first run of `most` slots, else the longest. Returns an empty run if the table is full.
  [[nodiscard]] run take(unsigned most) noexcept {
    const std::scoped_lock guard(mutex_);
    if (left_ == 0 || most == 0) return {0, 0};
    const run found = search(most);
    free_.erase(found);
    left_ -= found.count;
    next_ = (found.first + found.count) % free_.size();
    return found;
  }

  /// Ends a `take`: the first `good` slots are now in use, the others free.
  void commit(const run& taken, unsigned good) noexcept {
    const std::scoped_lock guard(mutex_);
    used_.insert({taken.first, good});
    give({taken.first + good, taken.count - good});
  }

  /// Begins to empty a slot; `emptied` or `kept` must follow. Returns false if the slot is not in use.
  [[nodiscard]] bool leave(unsigned slot) noexcept {
    const std::scoped_lock guard(mutex_);
    if (slot >= used_.size() || !used_.contains(slot)) return false;
    used_.erase({slot, 1});
    return true;
  }
  void emptied(unsigned slot) noexcept {
    const std::scoped_lock guard(mutex_);
    give({slot, 1});
  }
  void kept(unsigned slot) noexcept {
    const std::scoped_lock guard(mutex_);
    used_.insert({slot, 1});
  }

  [[nodiscard]] unsigned size() const noexcept { return free_.size(); }

 private:
  // Searches all slots only for runs of several slots, and at most once between two that are given back: the longest
  // run found then bounds the following searches.
  run search(unsigned most) noexcept {
    const unsigned enough = std::min(most, longest_);
    run best{0, 0};
    for (const auto& [from, to] : {std::pair{next_, size()}, std::pair{0U, next_}}) {
      for (unsigned first = free_.next(from, true); first < to;) {
        const unsigned end = std::min(free_.next(first, false), first + most);
        if (end - first > best.count) best = {first, end - first};
        if (best.count >= enough) return best;
        first = free_.next(end, true);
      }
    }
    longest_ = best.count;
    return best;
  }

  void give(const run& back) noexcept {
    if (back.count == 0) return;
    free_.insert(back);
    left_ += back.count;
    longest_ = std::min(size(), 2 * longest_ + back.count);  // the run may join the two longest
  }

  std::mutex mutex_;  // guards all members below
  slot_set free_;
  slot_set used_;  // slots in neither set are about to be filled or emptied
  unsigned next_ = 0;
  unsigned left_;
  unsigned longest_;  // no run of free slots is longer
};

}  // namespace pinfold::uring

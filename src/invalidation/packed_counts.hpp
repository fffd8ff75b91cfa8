// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Several counters in one word.
#pragma once

#include "os/check.hpp"

#include <atomic>
#include <concepts>
#include <cstdint>

namespace pinfold::invalidation {

/// As many counters of `Bits` bits as fit in a `Word`, changed together by one compare-and-swap. A counter whose bits
/// are all 1 never changes again. `which` selects counters: a word with all their bits set. Any thread; zero bytes are
/// zero counts.
template <std::unsigned_integral Word, unsigned Bits>
class packed_counts {
 public:
  void add(Word which) noexcept {
    PINFOLD_ASSERT(are_whole(which), "the bits of a counter are selected together");
    change([which](Word now) { return static_cast<Word>(now + (which & ones & ~full(now))); });
  }

  /// Selected counters that are 0 stay 0.
  void remove(Word which) noexcept {
    PINFOLD_ASSERT(are_whole(which), "the bits of a counter are selected together");
    change([which](Word now) {
      return static_cast<Word>(now - (which & ones & ~full(now) & ~full(static_cast<Word>(~now))));
    });
  }

  /// Returns whether a selected counter is not 0.
  [[nodiscard]] bool any(Word which) const noexcept { return (word_.load(std::memory_order_relaxed) & which) != 0; }

 private:
  static constexpr Word ones = static_cast<Word>(static_cast<Word>(-1) / ((1U << Bits) - 1));  // 1 in each counter

  [[nodiscard]] static constexpr bool are_whole(Word which) noexcept {
    return static_cast<Word>((which & ones) * ((1U << Bits) - 1)) == which;
  }

  /// Returns 1 for each counter whose bits are all 1.
  [[nodiscard]] static constexpr Word full(Word now) noexcept {
    constexpr Word low = static_cast<Word>(ones * ((1U << (Bits - 1)) - 1));
    return static_cast<Word>(((static_cast<Word>((now & low) + ones) & now) >> (Bits - 1)) & ones);
  }

  template <class F>
  void change(F&& next) noexcept {
    Word now = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(now, next(now), std::memory_order_seq_cst)) {
    }
  }

  std::atomic<Word> word_{0};
};

}  // namespace pinfold::invalidation

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which slots of a buffer table are free.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pinfold::uring {

/// Hands out runs of consecutive slots, as one system call can fill such a run. Starts looking behind the last run, so
/// that a slot rests as long as possible before it is used again. Thread-safe.
class slot_table {
 public:
  struct run {
    unsigned first;
    unsigned count;  ///< 0 when the table is full
  };

  explicit slot_table(unsigned slots) : taken_(slots, false), free_(slots) {}

  /// A run of at least one and at most `most` slots.
  [[nodiscard]] run take(unsigned most) noexcept {
    const std::scoped_lock guard(mutex_);
    if (free_ == 0) return {0, 0};
    while (taken_[next_]) advance();
    run found{next_, 0};
    while (found.count < most && found.first + found.count < taken_.size() && !taken_[found.first + found.count])
      taken_[found.first + found.count++] = true;
    free_ -= found.count;
    next_ = (found.first + found.count) % static_cast<unsigned>(taken_.size());
    return found;
  }

  void give(const run& back) noexcept {
    const std::scoped_lock guard(mutex_);
    for (unsigned i = 0; i < back.count; ++i) taken_[back.first + i] = false;
    free_ += back.count;
  }

  [[nodiscard]] bool taken(unsigned slot) const noexcept {
    const std::scoped_lock guard(mutex_);
    return slot < taken_.size() && taken_[slot];
  }

  [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(taken_.size()); }

 private:
  void advance() noexcept { next_ = (next_ + 1) % static_cast<unsigned>(taken_.size()); }

  mutable std::mutex mutex_;
  std::vector<bool> taken_;
  unsigned next_ = 0;
  unsigned free_;
};

}  // namespace pinfold::uring

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counts what is registered, and limits it (R12).
#pragma once

#include "os/check.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace pinfold::core {

/// The budget of one cache. Changed only under the engine's mutex. Statistics read it without the mutex, so the values
/// are atomics, in relaxed order because no reader relies on the order between them.
class budget {
 public:
  budget(std::size_t max_bytes, std::size_t max_count) noexcept : max_bytes_(max_bytes), max_count_(max_count) {}

  [[nodiscard]] bool can_ever_hold(std::size_t bytes) const noexcept { return bytes <= max_bytes_ && max_count_ != 0; }

  /// Takes room for `count` more entries and `bytes` more bytes, or nothing.
  [[nodiscard]] bool take(std::size_t bytes, std::size_t count) noexcept {
    if (!has_room(bytes, count)) return false;
    set(bytes_now() + bytes, count_now() + count);
    return true;
  }

  [[nodiscard]] bool has_room(std::size_t bytes, std::size_t count) const noexcept {
    return bytes <= max_bytes_ && bytes_now() <= max_bytes_ - bytes && count <= max_count_ &&
           count_now() <= max_count_ - count;
  }

  /// Counts `bytes` that are registered already, whether or not there is room for them.
  void charge(std::size_t bytes) noexcept { set(bytes_now() + bytes, count_now()); }

  void give(std::size_t bytes, std::size_t count) noexcept {
    PINFOLD_INVARIANT(bytes <= bytes_now() && count <= count_now(), "the budget gets back no more than was taken");
    set(bytes_now() - bytes, count_now() - count);
  }

  [[nodiscard]] std::size_t bytes_now() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t count_now() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t peak_count() const noexcept { return peak_count_.load(std::memory_order_relaxed); }

 private:
  void set(std::size_t bytes, std::size_t count) noexcept {
    bytes_.store(bytes, std::memory_order_relaxed);
    count_.store(count, std::memory_order_relaxed);
    peak_bytes_.store(std::max(peak_bytes(), bytes), std::memory_order_relaxed);
    peak_count_.store(std::max(peak_count(), count), std::memory_order_relaxed);
  }

  const std::size_t max_bytes_;
  const std::size_t max_count_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> peak_bytes_{0};
  std::atomic<std::size_t> peak_count_{0};
};

}  // namespace pinfold::core

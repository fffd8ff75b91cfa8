// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Counts and limits the registered amount (R12).
#pragma once

#include "node_budget/membership.hpp"
#include "os/check.hpp"
#include "os/mutex.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace pinfold::core {

/// The budget of one cache, and the share of it that each shard of the cache has. The registered amount never exceeds
/// the limits.
///
/// While there is room, a shard draws more than it needs, a *portion*, and mostly takes from that, so that shards do
/// not write each other's memory. When a shard finds no room, the budget becomes *tight*: the engine gathers what is
/// left of all portions, and shards take single amounts and give them back at once, until half of the budget is free
/// again. So `take` fails after `gathered()` only if there is no room anywhere.
///
/// A budget that is part of a node's budget is always tight: the room that a process takes in advance belongs to all of
/// its caches, and is in the `membership`.
class budget {
 public:
  class share;

  /// Throws `std::bad_alloc`.
  budget(std::size_t max_bytes, std::size_t max_count, std::size_t shares, node::membership* node = nullptr);
  ~budget();
  budget(const budget&) = delete;
  budget& operator=(const budget&) = delete;

  [[nodiscard]] bool can_ever_hold(std::size_t bytes) const noexcept { return bytes <= max_bytes_ && max_count_ != 0; }
  /// Returns whether the node's budget could ever hold that much; true without one.
  [[nodiscard]] bool node_can_ever_hold(std::size_t bytes) const noexcept {
    return node_ == nullptr || (bytes <= node_->max_bytes() && bytes <= node_->process_max());
  }
  /// Returns this process's part in the node's budget; null without one.
  [[nodiscard]] node::membership* node() const noexcept { return node_; }
  [[nodiscard]] share& of(std::size_t shard) noexcept {
    PINFOLD_ASSERT(shard < count_, "each shard has a share");
    return shares_[shard];
  }
  [[nodiscard]] std::size_t shares() const noexcept { return count_; }

  /// Returns whether no share holds unused room. If false, a caller whose share found no room calls `tighten`, then
  /// `give_rest` for every share, and then `say_gathered`, while no other thread does so.
  [[nodiscard]] bool gathered() const noexcept { return count_ == 1 || gathered_.load(std::memory_order_acquire); }
  void tighten() noexcept PINFOLD_EXCLUDES(mutex_);
  void say_gathered() noexcept {
    PINFOLD_ASSERT(tight_.load(std::memory_order_relaxed), "no share draws a portion while they are gathered");
    gathered_.store(true, std::memory_order_release);
  }

  // Sums over all shares. Any thread.
  [[nodiscard]] std::size_t bytes_now() const noexcept;
  [[nodiscard]] std::size_t count_now() const noexcept;
  /// Return the highest sums that were seen. The growth of several shards at the same time may be seen a little late.
  [[nodiscard]] std::size_t peak_bytes() const noexcept;
  [[nodiscard]] std::size_t peak_count() const noexcept;

 private:
  [[nodiscard]] bool draw(share& by, std::size_t bytes, std::size_t count) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] bool draw_from_node(share& by, std::size_t bytes, bool insists) noexcept PINFOLD_REQUIRES(mutex_);
  void put(std::size_t bytes, std::size_t count) noexcept PINFOLD_EXCLUDES(mutex_);
  void note_peak() const noexcept;

  const std::size_t max_bytes_;
  const std::size_t max_count_;
  const std::size_t count_;  // of shares
  node::membership* const node_;
  std::unique_ptr<share[]> shares_;

  alignas(64) os::mutex mutex_;  // after a shard's mutex
  std::size_t free_bytes_ PINFOLD_GUARDED_BY(mutex_);
  std::size_t free_count_ PINFOLD_GUARDED_BY(mutex_);
  alignas(64) std::atomic<std::size_t> owed_bytes_{0};  // registered beyond the limit: written under the mutex
  std::atomic<bool> tight_{false};                      // written under the mutex
  std::atomic<bool> gathered_{false};
  mutable std::atomic<std::size_t> peak_bytes_{0};
  mutable std::atomic<std::size_t> peak_count_{0};
};

/// A shard's share. Guarded by the shard's mutex, except `bytes_now` and `count_now`: atomics in relaxed order, because
/// no reader relies on the order between them.
class alignas(64) budget::share {
 public:
  /// Takes room for `count` more entries and `bytes` more bytes, or nothing.
  [[nodiscard]] bool take(std::size_t bytes, std::size_t count) noexcept {
    const bool owed = home_->owed_bytes_.load(std::memory_order_relaxed) != 0;
    if (bytes > spare_bytes_ || count > spare_count_ || owed) [[unlikely]] {
      if (!home_->draw(*this, bytes, count)) return false;
    }
    PINFOLD_ASSERT(bytes <= spare_bytes_ && count <= spare_count_, "what was drawn suffices");
    spare_bytes_ -= bytes;
    spare_count_ -= count;
    use(bytes, count);
    if (alone()) note_own_peak();
    return true;
  }

  /// Counts `bytes` that are registered already, whether or not there is room for them.
  void charge(std::size_t bytes) noexcept;

  void give(std::size_t bytes, std::size_t count) noexcept {
    PINFOLD_INVARIANT(bytes <= bytes_now() && count <= count_now(), "the budget gets back no more than was taken");
    const bool grown = bytes_now() > seen_bytes_ || count_now() > seen_count_;
    if (grown && !alone()) [[unlikely]]
      note_growth();
    use(std::size_t{0} - bytes, std::size_t{0} - count);
    if (home_->tight_.load(std::memory_order_relaxed) || home_->owed_bytes_.load(std::memory_order_relaxed) != 0)
      return home_->put(bytes, count);
    spare_bytes_ += bytes;
    spare_count_ += count;
  }

  /// Gives back what is left of a portion.
  void give_rest() noexcept {
    home_->put(spare_bytes_, spare_count_);
    spare_bytes_ = spare_count_ = 0;
  }

  [[nodiscard]] std::size_t bytes_now() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t count_now() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// Return the same as words, for readers of the process's memory.
  [[nodiscard]] const std::atomic<std::size_t>& bytes_word() const noexcept { return bytes_; }
  [[nodiscard]] const std::atomic<std::size_t>& count_word() const noexcept { return used_; }
  /// The reason why the last `take` failed.
  enum class refusal : std::uint8_t {
    none,
    own_limit,  ///< no room in this budget
    node_full,  ///< room in this budget, and none in the node's
    gives_way,  ///< another process wants room: it has its turn, or this one has more than its even share
  };
  [[nodiscard]] refusal why() const noexcept { return refusal_; }
  /// Makes the next `take` not give way.
  void insist() noexcept { insists_ = true; }
  /// Returns whether there is no other share.
  [[nodiscard]] bool alone() const noexcept { return home_->count_ == 1; }
  [[nodiscard]] const budget& whole() const noexcept { return *home_; }

 private:
  friend budget;

  void use(std::size_t bytes, std::size_t count) noexcept {
    bytes_.store(bytes_now() + bytes, std::memory_order_relaxed);
    used_.store(count_now() + count, std::memory_order_relaxed);
  }
  void note_own_peak() noexcept {
    auto& home = *home_;
    if (bytes_now() > home.peak_bytes_.load(std::memory_order_relaxed))
      home.peak_bytes_.store(bytes_now(), std::memory_order_relaxed);
    if (count_now() > home.peak_count_.load(std::memory_order_relaxed))
      home.peak_count_.store(count_now(), std::memory_order_relaxed);
  }
  void note_growth() noexcept {
    seen_bytes_ = std::max(seen_bytes_, bytes_now());
    seen_count_ = std::max(seen_count_, count_now());
    home_->note_peak();
  }

  budget* home_ = nullptr;
  std::size_t spare_bytes_ = 0;
  std::size_t spare_count_ = 0;
  std::size_t seen_bytes_ = 0;  // the share's own peak when the whole budget's was last noted
  std::size_t seen_count_ = 0;
  refusal refusal_ = refusal::none;
  bool insists_ = false;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> used_{0};
};

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A part of a cache: the entries of some addresses, and the mutex that guards them.
#pragma once

#include "core/budget.hpp"
#include "core/counters.hpp"
#include "core/entry_table.hpp"
#include "core/idle_sweep.hpp"
#include "core/open_waiter.hpp"
#include "core/pending_invalidations.hpp"
#include "core/shard_map.hpp"
#include "core/wait_table.hpp"
#include "index/entry_pool.hpp"
#include "index/hit_table.hpp"
#include "index/record_page.hpp"
#include "os/check.hpp"

#include <pinfold/detail/engine.hpp>

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace pinfold::core {

/// A control block for as long as its shard exists.
class owned_control_block {
 public:
  /// Throws `std::bad_alloc`.
  explicit owned_control_block(const void* engine) : block_(index::take_control_block()) {
    if (block_ == nullptr) throw std::bad_alloc();
    PINFOLD_ASSERT(block_->engine.load(std::memory_order_relaxed) == nullptr,
                   "a control block is of one shard at a time");
    block_->engine.store(engine, std::memory_order_release);
  }
  ~owned_control_block() {
    block_->engine.store(nullptr, std::memory_order_release);
    index::give_back(block_);
  }
  owned_control_block(const owned_control_block&) = delete;
  owned_control_block& operator=(const owned_control_block&) = delete;
  [[nodiscard]] index::control_block& operator*() const noexcept { return *block_; }

 private:
  index::control_block* block_;
};

/// The entries of the addresses that `shard_map` gives to this shard. Two shards have no entry, no record and no list
/// in common; only the budget, the levels in use and the hits' view belong to the whole cache. A thread holds the mutex
/// of one shard at a time, or takes those of all shards in their order.
struct alignas(64) shard {
  /// The parts that all shards of a cache share.
  struct common {
    detail::hit_view& view;
    const std::atomic<bool>& hits_need_the_mutex;
    invalidation::registered_filter* registered;  ///< null for imported memory
    budget& room;
  };

  /// Throws `std::bad_alloc`.
  shard(detail::engine& of, std::size_t which, const detail::driver& driver, const cache_options& options,
        const common& with)
      : hits(driver.token_bytes > 0),
        engine(of),
        number(which),
        own_block(&of),
        control(*own_block),
        mutex(control.guard),
        room(with.room.of(which)),
        pool(control, driver.token_bytes > 0),
        table(driver, options, {hits, with.view, with.hits_need_the_mutex, pool, room, counts, with.registered}),
        sweep(driver.token_bytes > 0 ? options.idle_timeout : std::chrono::milliseconds(0)) {}

  index::hit_table hits;  ///< written under the mutex, read by hits
  detail::engine& engine;
  const std::size_t number;

 private:
  owned_control_block own_block;

 public:
  index::control_block& control;
  os::mutex& mutex;
  guarded_counters counts;
  budget::share& room;
  index::entry_pool pool;  ///< written under the mutex, walked without it
  entry_table table PINFOLD_GUARDED_BY(mutex);
  pending_invalidations pending PINFOLD_GUARDED_BY(mutex);
  wait_table waiting PINFOLD_GUARDED_BY(mutex);
  idle_sweep sweep PINFOLD_GUARDED_BY(mutex);
  open_waiter* open_waiters PINFOLD_GUARDED_BY(mutex) = nullptr;
  bool drained PINFOLD_GUARDED_BY(mutex) = false;       ///< the end of the cache closes all entries
  bool orphaned PINFOLD_GUARDED_BY(mutex) = false;      ///< the cache has ended
  bool hits_stopped PINFOLD_GUARDED_BY(mutex) = false;  ///< for good: the kernel refused the barrier
};

/// The shards of one cache, side by side.
class shards {
 public:
  /// Throws `std::bad_alloc`.
  shards(std::size_t count, detail::engine& of, const detail::driver& driver, const cache_options& options,
         const shard::common& with)
      : map_(count), memory_(static_cast<shard*>(::operator new(count * sizeof(shard), alignment))) {
    try {
      for (; count_ < count; ++count_) new (memory_ + count_) shard(of, count_, driver, options, with);
    } catch (...) {
      clear();
      throw;
    }
  }
  ~shards() { clear(); }
  shards(const shards&) = delete;
  shards& operator=(const shards&) = delete;

  [[nodiscard]] shard_map& map() noexcept { return map_; }
  [[nodiscard]] const shard_map& map() const noexcept { return map_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] shard& operator[](std::size_t number) const noexcept {
    PINFOLD_ASSERT(number < count_, "the cache has a shard of this number");
    return memory_[number];
  }
  /// Some of the shards, in their order.
  class subset {
   public:
    class iterator {
     public:
      iterator(shard* memory, shard_set left) noexcept : memory_(memory), left_(left) {}
      [[nodiscard]] shard& operator*() const noexcept { return memory_[std::countr_zero(left_)]; }
      iterator& operator++() noexcept {
        left_ &= left_ - 1;
        return *this;
      }
      [[nodiscard]] bool operator==(const iterator& other) const noexcept { return left_ == other.left_; }

     private:
      shard* memory_;
      shard_set left_;
    };
    subset(shard* memory, shard_set which) noexcept : memory_(memory), which_(which) {}
    [[nodiscard]] iterator begin() const noexcept { return {memory_, which_}; }
    [[nodiscard]] iterator end() const noexcept { return {memory_, 0}; }

   private:
    shard* memory_;
    shard_set which_;
  };
  [[nodiscard]] subset of(shard_set which) const noexcept { return {memory_, which}; }
  [[nodiscard]] subset others(shard_set which, const shard& than) const noexcept {
    return of(which & ~(shard_set{1} << than.number));
  }

  /// Returns the shard that eviction visits next: the one of two with more entries, so that shards lose entries about
  /// in proportion to those that they have.
  [[nodiscard]] shard& next_for_eviction() noexcept {
    const auto first = hand_.fetch_add(1, std::memory_order_relaxed) % count_;
    shard& one = memory_[first];
    shard& other = memory_[(first + 1) % count_];
    return one.room.count_now() >= other.room.count_now() ? one : other;
  }
  /// Takes back the rest of the shards' portions: from now on, any shard can take the free room. Requires that the
  /// thread holds no shard's mutex.
  void gather_room(budget& of) noexcept {
    const std::scoped_lock turn(gathering_);
    if (of.gathered()) return;
    of.tighten();
    for (shard& each : *this) {
      os::scoped_lock guard(each.mutex);
      each.room.give_rest();
    }
    of.say_gathered();
  }

  [[nodiscard]] shard* begin() const noexcept { return memory_; }
  [[nodiscard]] shard* end() const noexcept { return memory_ + count_; }

 private:
  static constexpr std::align_val_t alignment{alignof(shard)};
  void clear() noexcept {
    while (count_ > 0) memory_[--count_].~shard();
    ::operator delete(memory_, alignment);
  }

  shard_map map_;
  shard* memory_;
  std::size_t count_ = 0;
  alignas(64) std::atomic<std::uint32_t> hand_{0};  // the shards that eviction visits, one after the other
  std::mutex gathering_;                            // before the shards' mutexes: one thread gathers the budget
};

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Waiting for room, for closes and for the end of leases, in any shard of a cache.
#pragma once

#include "core/wait_table.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pinfold::core {

/// Wakes threads that wait until something changed in a cache. A change costs a load while no thread waits: a thread
/// that begins to wait announces itself, passes a barrier on all threads, and checks its condition once more.
class change_signal {
 public:
  class waiter {
   public:
    explicit waiter(change_signal& on) noexcept : on_(on) {}
    ~waiter() {
      if (!begun_) return;
      PINFOLD_ASSERT(on_.waiters_.load(std::memory_order_relaxed) > 0, "a thread that waits is counted");
      on_.waiters_.fetch_sub(1, std::memory_order_relaxed);
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    [[nodiscard]] bool begun() const noexcept { return begun_; }
    /// Announces the thread, which must then pass a barrier and check its condition again.
    void begin() noexcept {
      PINFOLD_ASSERT(!begun_, "a thread announces itself once");
      begun_ = true;
      on_.waiters_.fetch_add(1, std::memory_order_seq_cst);
      seen_ = on_.changes();
    }
    /// Notes that there was no barrier: a thread that notifies may have looked for waiters too early.
    void distrust() noexcept { trusts_ = false; }
    /// Waits for a change since the last check. Returns false when none came in time.
    [[nodiscard]] bool wait(deadline until) noexcept {
      PINFOLD_ASSERT(begun_, "a thread announces itself before it waits");
      constexpr std::chrono::milliseconds longest_without_barrier{10};
      const auto end = trusts_ ? until : std::min(until, std::chrono::steady_clock::now() + longest_without_barrier);
      return on_.wait(seen_, end) || end < until;
    }

   private:
    change_signal& on_;
    bool begun_ = false;
    bool trusts_ = true;
    std::uint64_t seen_ = 0;
  };

  /// Wakes the waiters. Called after the change, on any thread, which may hold a shard's mutex.
  void notify() noexcept {
    if (waiters_.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    {
      const std::scoped_lock guard(mutex_);
      ++changes_;
    }
    changed_.notify_all();
  }

 private:
  [[nodiscard]] std::uint64_t changes() noexcept {
    const std::scoped_lock guard(mutex_);
    return changes_;
  }

  bool wait(std::uint64_t& seen, deadline until) noexcept {
    std::unique_lock guard(mutex_);
    const bool in_time = changed_.wait_until(guard, until, [&] { return changes_ != seen; });
    seen = changes_;
    return in_time;
  }

  std::atomic<std::uint32_t> waiters_{0};
  std::mutex mutex_;  // after a shard's mutex
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
};

}  // namespace pinfold::core

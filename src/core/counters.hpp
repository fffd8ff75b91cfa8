// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Event counts (R43): most are guarded by the engine's mutex and cost an addition; any thread may count the others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// Counted under the engine's mutex.
enum class counter : std::uint8_t {
  acquires,
  hits,
  valid,
  invalid,
  misses_cold,  // the five kinds of misses in the order of `miss_reason`
  misses_invalidated,
  misses_access,
  misses_extent,
  misses_evicted,
  failed_acquires,
  evicted,
  expired,
  found,
  find_misses,
  opens,
  closes,
  failed_opens,
  failed_closes,
  conflicts,
  bypasses,
  bypass_bytes,
  unmonitored,
  file_backed,
  invalidated_while_leased,
  waited_ns,
  quarantined,
  count_,
};

/// Counted without the engine's mutex.
enum class shared_counter : std::uint8_t {
  hits_elsewhere,   // hits without the mutex, by threads that have no ledger
  finds_elsewhere,  // the same for `find`
  sink_failures,
  audits,
  failed_audits,
  count_,
};

/// Counters that any thread may read. Sums wrap like unsigned numbers, so a gauge may go up on one thread and down on
/// another.
class counters {
 public:
  /// Requires the engine's mutex: no other thread writes then, so that no locked instruction is needed.
  void add(counter which, std::uint64_t amount = 1) noexcept {
    auto& mine = guarded_[static_cast<std::size_t>(which)];
    mine.store(mine.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void subtract(counter which, std::uint64_t amount = 1) noexcept { add(which, std::uint64_t{0} - amount); }

  /// Adds 1 on any thread, in a cache line that few other threads use.
  void add(shared_counter which) noexcept {
    // Relaxed: a count orders nothing.
    shards_[shard_of_this_thread()].cells[static_cast<std::size_t>(which)].fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t sum(counter which) const noexcept {
    return guarded_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t sum(shared_counter which) const noexcept {
    std::uint64_t total = 0;
    for (const auto& one : shards_) total += one.cells[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    return total;
  }

 private:
  static constexpr std::size_t shard_count = 8;
  struct alignas(64) shard {
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(shared_counter::count_)> cells{};
  };

  static std::size_t shard_of_this_thread() noexcept {
    static std::atomic<std::size_t> next{0};
    thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % shard_count;
    return mine;
  }

  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(counter::count_)> guarded_{};
  std::array<shard, shard_count> shards_{};
};

}  // namespace pinfold::core

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Event counts in shards, so that threads that count do not share a cache line, summed when they are read (R43).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

enum class counter : std::uint8_t {
  acquires,
  hits,
  hits_elsewhere,  // without the mutex, by caches that have no place in the ledgers
  valid,
  invalid,
  misses_cold,  // the five kinds of misses in the order of `miss_reason`
  misses_invalidated,
  misses_rights,
  misses_extent,
  misses_evicted,
  failed_acquires,
  evicted,
  found,
  notfound,
  opens,
  closes,
  failed_opens,
  failed_closes,
  conflicts,
  bypasses,
  bypass_bytes,
  unmonitored,
  invalidated_while_leased,
  sink_failures,
  waited_ns,
  quarantined,
  count_,
};

/// Thread-safe. Sums wrap like unsigned numbers, so a gauge may go up on one thread and down on another.
class counters {
 public:
  void add(counter which, std::uint64_t amount = 1) noexcept {
    // Relaxed: a count orders nothing.
    cell(which).fetch_add(amount, std::memory_order_relaxed);
  }
  void subtract(counter which, std::uint64_t amount = 1) noexcept { add(which, std::uint64_t{0} - amount); }

  [[nodiscard]] std::uint64_t sum(counter which) const noexcept {
    std::uint64_t total = 0;
    for (const auto& one : shards_) total += one.cells[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    return total;
  }

 private:
  static constexpr std::size_t shard_count = 8;
  struct alignas(64) shard {
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(counter::count_)> cells{};
  };

  static std::size_t shard_of_this_thread() noexcept {
    static std::atomic<std::size_t> next{0};
    thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % shard_count;
    return mine;
  }

  std::atomic<std::uint64_t>& cell(counter which) noexcept {
    return shards_[shard_of_this_thread()].cells[static_cast<std::size_t>(which)];
  }

  std::array<shard, shard_count> shards_{};
};

}  // namespace pinfold::core

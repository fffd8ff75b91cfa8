// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Event counts (R43): most are guarded by a shard's mutex and cost an addition; any thread may count the others.
#pragma once

#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// Counted under a shard's mutex.
enum class counter : std::uint8_t {
  acquires,  // the first eight, which misses count, lie in one cache line
  opens,
  closes,
  misses_cold,  // the five kinds of misses in the order of `miss_reason`
  misses_invalidated,
  misses_access,
  misses_extent,
  misses_evicted,
  evicted,
  hits,
  valid,
  invalid,
  failed_acquires,
  expired,
  found,
  find_misses,
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
  requests_waiting,
  closes_due,
  count_,
};

/// Counted without a mutex.
enum class shared_counter : std::uint8_t {
  hits_elsewhere,   // hits without the mutex, by threads that have no ledger
  finds_elsewhere,  // the same for `find`
  sink_failures,
  audits,
  failed_audits,
  count_,
};

/// The counters of one shard, which any thread may read. Sums wrap like unsigned numbers, so a gauge may go up on one
/// thread, or in one shard, and down on another.
class guarded_counters {
 public:
  /// Requires the shard's mutex: no other thread writes then, so that no locked instruction is needed.
  void add(counter which, std::uint64_t amount = 1) noexcept {
    auto& mine = cells_[static_cast<std::size_t>(which)];
    mine.store(mine.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void subtract(counter which, std::uint64_t amount = 1) noexcept { add(which, std::uint64_t{0} - amount); }

  [[nodiscard]] std::uint64_t count(counter which) const noexcept {
    return cells_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
  }

 private:
  alignas(64) std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(counter::count_)> cells_{};
};

/// Counters that any thread may change.
class shared_counters {
 public:
  /// Adds 1, in a cache line that few other threads use.
  void add(shared_counter which) noexcept {
    // Relaxed: a count orders nothing.
    lines_[line_of_this_thread()].cells[static_cast<std::size_t>(which)].fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t sum(shared_counter which) const noexcept {
    std::uint64_t total = 0;
    for (const auto& one : lines_) total += one.cells[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    return total;
  }

  /// Returns the largest `now` of all calls.
  [[nodiscard]] std::uint64_t raise_peak_leases(std::uint64_t now) const noexcept {
    auto most = peak_leases_.load(std::memory_order_relaxed);
    while (most < now && !peak_leases_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
    return std::max(most, now);
  }

 private:
  static constexpr std::size_t line_count = 8;
  struct alignas(64) line {
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(shared_counter::count_)> cells{};
  };

  static std::size_t line_of_this_thread() noexcept {
    static std::atomic<std::size_t> next{0};
    thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % line_count;
    return mine;
  }

  std::array<line, line_count> lines_{};
  mutable std::atomic<std::uint64_t> peak_leases_{0};
};

/// A number that threads change under a shard's mutex, and may read without it: then it may be old.
class guarded_number {
 public:
  operator std::size_t() const noexcept { return value_.load(std::memory_order_acquire); }
  void operator++() noexcept { set(value_.load(std::memory_order_relaxed) + 1); }
  void operator--() noexcept {
    PINFOLD_ASSERT(value_.load(std::memory_order_relaxed) > 0, "a number of things does not fall below zero");
    set(value_.load(std::memory_order_relaxed) - 1);
  }

 private:
  void set(std::size_t now) noexcept { value_.store(now, std::memory_order_release); }

  std::atomic<std::size_t> value_{0};
};

}  // namespace pinfold::core

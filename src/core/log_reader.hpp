// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The position of one cache in the event log, and its shards that have not processed all events up to there.
#pragma once

#include "core/shard_map.hpp"
#include "core/wait_table.hpp"
#include "invalidation/event_log.hpp"
#include "os/mutex.hpp"

#include <pinfold/range.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// The counts of the event log and of the kernel's events when a request read them.
struct happened {
  std::uint64_t on_event_log;
  std::uint64_t in_kernel;
};

/// Reads the event log for one cache. Thread-safe; the mutex comes before the shards' mutexes.
class log_reader {
 public:
  explicit log_reader(const invalidation::event_log& log) noexcept
      : log_(log), cursor_(log.generation().load(std::memory_order_seq_cst)) {}

  enum class progress : std::uint8_t {
    done,
    more,        ///< the caller has to call `read` again
    unfinished,  ///< a writer reserved a place, and has not published it
  };
  /// Reads the events before the number `target`, only some at once, as requests for other memory wait meanwhile. Calls
  /// `deliver(range)`, under the mutex, for what each reports.
  template <class Deliver>
  [[nodiscard]] progress read(std::uint64_t target, Deliver&& deliver) noexcept {
    constexpr int most_at_once = 32;
    os::scoped_lock guard(mutex_);
    for (int count = 0; is_before(target); ++count) {
      if (count == most_at_once) return progress::more;
      range gone;
      switch (log_.read(cursor_, gone)) {
        case invalidation::read_status::nothing: return progress::done;
        case invalidation::read_status::everything: deliver(range{0, UINTPTR_MAX}); break;
        case invalidation::read_status::unfinished:
          deliver(range{0, UINTPTR_MAX});
          if (!skip_unpublished()) return progress::unfinished;
          break;
        case invalidation::read_status::one:
          unfinished_since_ = {};
          if (!gone.empty()) deliver(gone);
      }
    }
    return progress::done;
  }
  /// Returns the number of the event that is read next.
  [[nodiscard]] std::uint64_t next() noexcept {
    os::scoped_lock guard(mutex_);
    return cursor_;
  }
  /// Returns whether a place that a writer reserved is not published.
  [[nodiscard]] bool waits_for_writer() noexcept {
    os::scoped_lock guard(mutex_);
    return unfinished_since_ != deadline{};
  }

  /// The shards with pending invalidations. Changed under the shard's mutex.
  [[nodiscard]] shard_set pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  void add_pending(std::size_t shard) noexcept { pending_.fetch_or(shard_set{1} << shard, std::memory_order_release); }
  void remove_pending(std::size_t shard) noexcept {
    pending_.fetch_and(~(shard_set{1} << shard), std::memory_order_release);
  }

  /// Lets hits succeed again without a look at the pending invalidations, if there are none. The marks come before this
  /// store, so a thread that reads the new value sees them. The value is the sum of two earlier values: it equals the
  /// sum of the present ones only if neither has changed. No invalidation becomes pending meanwhile, as that takes the
  /// mutex.
  void store_seen(const happened& known, std::atomic<std::uint64_t>& seen) noexcept {
    os::scoped_lock guard(mutex_);
    if (pending() != 0 || is_before(known.on_event_log)) return;  // or it is not published yet
    seen.store(cursor_ + known.in_kernel, std::memory_order_release);
  }

 private:
  [[nodiscard]] bool is_before(std::uint64_t number) const noexcept PINFOLD_REQUIRES(mutex_) {
    return static_cast<std::int64_t>(number - cursor_) > 0;
  }

  // Returns true when a reserved place on the event log stayed unpublished for too long, and moves past it. Until the
  // place is published, no kept entry can be trusted. A writer that died (a vfork child, killed between two
  // instructions) must not make that last for ever.
  [[nodiscard]] bool skip_unpublished() noexcept PINFOLD_REQUIRES(mutex_) {
    constexpr std::chrono::seconds longest{10};
    const auto now = std::chrono::steady_clock::now();
    if (unfinished_since_ == deadline{}) unfinished_since_ = now;
    if (now - unfinished_since_ < longest) return false;
    unfinished_since_ = {};
    ++cursor_;
    return true;
  }

  const invalidation::event_log& log_;
  alignas(64) os::mutex mutex_;
  std::uint64_t cursor_ PINFOLD_GUARDED_BY(mutex_);         // the next number to read
  deadline unfinished_since_ PINFOLD_GUARDED_BY(mutex_){};  // when a place was first found unpublished
  std::atomic<shard_set> pending_{0};
};

}  // namespace pinfold::core

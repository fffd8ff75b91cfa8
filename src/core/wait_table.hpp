// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Waiting for one entry, or for room, without a condition variable in every entry.
#pragma once

#include "os/check.hpp"
#include "os/mutex.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

using deadline = std::chrono::steady_clock::time_point;

/// Condition variables that waiting threads share, chosen by what each thread waits for. A thread that wakes must check
/// its condition again, as the notification may be for another thread. Guarded by the shard's mutex, which a wait
/// releases meanwhile.
class wait_table {
 public:
  /// Waits until `what` is notified or the deadline has passed; returns false when it has.
  bool wait(const void* what, os::mutex& held, deadline until) noexcept PINFOLD_REQUIRES(held) {
    bucket& mine = bucket_of(what);
    ++mine.waiters;
    const bool in_time = mine.changed.wait_until(held, until) == std::cv_status::no_timeout;
    PINFOLD_ASSERT(mine.waiters > 0, "a thread that waits is counted");
    --mine.waiters;
    return in_time;
  }

  void notify(const void* what) noexcept {
    bucket& theirs = bucket_of(what);
    if (theirs.waiters > 0) theirs.changed.notify_all();
  }

 private:
  struct bucket {
    std::condition_variable_any changed;
    std::uint32_t waiters = 0;
  };

  bucket& bucket_of(const void* what) noexcept {
    return buckets_[(reinterpret_cast<std::uintptr_t>(what) >> 4U) * 0x9e3779b97f4a7c15U >> 60U];
  }

  std::array<bucket, 16> buckets_;
};

}  // namespace pinfold::core

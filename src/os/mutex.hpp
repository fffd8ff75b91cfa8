// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A mutex that clang's thread-safety analysis understands, and the attributes that declare which mutex guards what.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__clang__)
#define PINFOLD_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define PINFOLD_THREAD_ATTRIBUTE(x)
#endif

#define PINFOLD_GUARDED_BY(m) PINFOLD_THREAD_ATTRIBUTE(guarded_by(m))
#define PINFOLD_REQUIRES(m) PINFOLD_THREAD_ATTRIBUTE(requires_capability(m))
#define PINFOLD_EXCLUDES(m) PINFOLD_THREAD_ATTRIBUTE(locks_excluded(m))
#define PINFOLD_SAYS_HELD(m) PINFOLD_THREAD_ATTRIBUTE(assert_capability(m))

namespace pinfold::os {

/// A mutex that spins for a while before it sleeps: the critical sections take a fraction of the time that sleeping and
/// waking costs. Without contention, locking and unlocking are one locked instruction each, inline. A thread that slept
/// for a millisecond in all gets the mutex next. Otherwise a thread that unlocks it and locks it again at once keeps
/// it, as long as a woken thread needs longer to run (tests/protocol/mutex.pml).
class PINFOLD_THREAD_ATTRIBUTE(capability("mutex")) mutex {
 public:
  mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept PINFOLD_THREAD_ATTRIBUTE(acquire_capability()) {
    auto now = free;
    if (!state_.compare_exchange_strong(now, held, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void says_held() const noexcept PINFOLD_SAYS_HELD(this) {}  ///< where the analysis cannot know
  void unlock() noexcept PINFOLD_THREAD_ATTRIBUTE(release_capability()) {
    if (const auto was = state_.fetch_sub(1, std::memory_order_seq_cst); was != held) [[unlikely]]
      wake(was);
  }

 private:
  static constexpr std::uint32_t free = 0;
  static constexpr std::uint32_t held = 1;
  static constexpr std::uint32_t slept_on = 2;  // held, and a thread may sleep
  static constexpr std::uint32_t claimed = 3;   // held, and promised to a thread that slept for long
  static constexpr std::uint32_t reserved = 4;  // for a thread that slept for long

  void wait() noexcept;
  void wake(std::uint32_t was) noexcept;

  std::atomic<std::uint32_t> state_{free};
};

}  // namespace pinfold::os

#include "os/mutex_scope.hpp"

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long a cache waits for pins where all of its registrations are leased.
#pragma once

#include "core/deadlines.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace pinfold::core {

/// Remembers until when a pin may be transient, and waits that gained nothing. Thread-safe.
class leased_pace {
 public:
  /// Notes that a pin counted now may be transient. It is a lease if it outlasts the longest transient pin.
  void note_transient() noexcept {
    const auto end = std::chrono::steady_clock::now() + longest_transient_pin;
    for (auto now = transient_until_.load(std::memory_order_relaxed);
         now < end && !transient_until_.compare_exchange_weak(now, end, std::memory_order_relaxed);) {
    }
  }
  /// Returns whether a pin that keeps an entry open may be transient.
  [[nodiscard]] bool any_transient() const noexcept {
    const auto until = transient_until_.load(std::memory_order_relaxed);
    return until != deadline{} && std::chrono::steady_clock::now() < until;
  }

  /// Returns the deadline of a wait for transient pins. After a wait without success the pins are most likely leases,
  /// so the next waits are short for a while: at most a hundredth of the time is lost to long waits.
  [[nodiscard]] deadline end_of_transient(const deadlines& until) const noexcept {
    const auto now = std::chrono::steady_clock::now();
    const auto last = last_vain_wait_.load(std::memory_order_relaxed);
    const bool lately = last != deadline{} && now - last < 100 * longest_transient_pin;
    return lately ? std::min(until.transient(), now + longest_transient_pin / 50) : until.transient();
  }
  void note_vain_wait() noexcept { last_vain_wait_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed); }

 private:
  std::atomic<deadline> last_vain_wait_{deadline{}};
  std::atomic<deadline> transient_until_{deadline{}};
};

}  // namespace pinfold::core

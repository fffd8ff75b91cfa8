// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of the monitors, which detect that memory of this process goes away.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pinfold::invalidation {

/// A source of events for the event log, one of its kind in the process: made for the first cache that needs it, and
/// destroyed with the last. In a child of fork(2) it reports nothing more, and its destructor changes nothing of the
/// parent's.
///
/// Thread-safe. From the return of the function that makes a monitor until its destructor begins, every event that it
/// claims to cover is counted, in the event log's generation or in `kernel_generation()`, before an acquire that
/// happens after the event can begin.
class monitor {
 public:
  monitor() = default;
  monitor(const monitor&) = delete;
  monitor& operator=(const monitor&) = delete;
  virtual ~monitor() = default;

  [[nodiscard]] virtual const char* name() const noexcept = 0;

  /// Watches whole pages before the registrar registers them; for a monitor that asks the kernel about each range.
  /// Returns an error if the monitor cannot watch these pages: then no entry on them may be kept because of it. Never
  /// called with a lock held that an event could wait for.
  [[nodiscard]] virtual result<void> watch(const range& pages) noexcept = 0;

  /// Waits until every event that has already happened to memory is in the event log. Called before every look-up of a
  /// strict cache. Most monitors do nothing.
  virtual void wait_for_events() noexcept {}

  /// Returns the word that counts the events of a monitor whose events come from the kernel, which cannot write to the
  /// event log. The word never decreases, and is readable as long as this object exists, also in a child. Null for all
  /// other monitors.
  [[nodiscard]] virtual const std::atomic<std::uint64_t>* kernel_generation() const noexcept { return nullptr; }

  /// Writes to the event log the events that the word counted before the call. Returns the value of the word up to
  /// which that is done.
  virtual std::uint64_t drain() noexcept { return 0; }

  /// Returns whether the monitor detects that another process changes a file that is mapped here.
  [[nodiscard]] virtual bool sees_files() const noexcept { return false; }

  /// Returns whether the monitor works. If not, no entry may be kept because of it. Cheap: every miss calls it.
  [[nodiscard]] virtual bool works() const noexcept { return true; }

  /// Returns a constant text: why `works` is false.
  [[nodiscard]] virtual const char* why_not() const noexcept { return "the monitor has failed"; }

  /// Returns whether the monitor works, after restarting it if necessary and possible. The first thread that finds it
  /// failed counts the failure, posts that any memory may be gone, and restarts the monitor; it repeats a failed
  /// attempt after `between_attempts`. Every other thread gets false meanwhile, and does not wait. Never called with a
  /// lock held that an event could wait for.
  [[nodiscard]] bool ensure_works() noexcept {
    const bool as_ever = works() && !failed_.load(std::memory_order_acquire);
    return as_ever || recover();
  }

  /// Return how often the monitor was found failed, and how often it was found working after that. While both stay the
  /// same, and `ensure_works` returned true, registrations are watched without a gap.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return recoveries_.load(std::memory_order_acquire); }

  /// Returns a constant text: why the monitor failed last; null if it never did.
  [[nodiscard]] const char* last_failure() const noexcept { return last_failure_.load(std::memory_order_acquire); }

  static constexpr std::chrono::milliseconds between_attempts{100};

 protected:
  /// Restarts the monitor, if possible. Returns whether it worked at a moment during the call: another library may stop
  /// it again before the call returns, which the next `ensure_works` finds. Called by one thread at a time, after
  /// everything kept because of the monitor was invalidated.
  [[nodiscard]] virtual bool restart() noexcept { return false; }

 private:
  [[nodiscard]] bool recover() noexcept;

  std::atomic<bool> failed_{false};      // from the first failure that a thread found until the monitor works again
  std::atomic<bool> recovering_{false};  // a thread is in `recover`, and owns the members below
  std::chrono::steady_clock::time_point next_attempt_{};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> recoveries_{0};
  std::atomic<const char*> last_failure_{nullptr};
};

}  // namespace pinfold::invalidation

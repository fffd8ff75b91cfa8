// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of the monitors, which learn that memory of this process goes away.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pinfold::invalidation {

/// A source of events for the event log, one of its kind for the process: made when the first cache wants it, and
/// destroyed with the last. In a child of fork(2) it reports nothing more, and its destructor undoes nothing of the
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

  /// Watches whole pages that are about to be registered, before the registrar is called; for a monitor that has to ask
  /// the kernel about each range. Returns an error when the monitor cannot see what happens to these pages: then
  /// nothing on them may be kept on its word. Never called with a lock held that an event could wait for.
  [[nodiscard]] virtual result<void> watch(const range& pages) noexcept = 0;

  /// Waits until every event that has already happened to memory is on the event log. Called before every look-up of a
  /// strict cache. Most monitors have nothing to do.
  virtual void wait_for_events() noexcept {}

  /// For a monitor whose events come from the kernel, which cannot write to the event log: returns a word that counts
  /// them, and only goes up. The word is readable as long as this object exists, also in a child. Null for all other
  /// monitors.
  [[nodiscard]] virtual const std::atomic<std::uint64_t>* kernel_generation() const noexcept { return nullptr; }

  /// Puts on the event log the events that the word counted before the call, and returns up to which value of the word
  /// that is done.
  virtual std::uint64_t drain() noexcept { return 0; }

  /// Whether the monitor sees what other processes do to a file that is mapped here.
  [[nodiscard]] virtual bool sees_files() const noexcept { return false; }

  /// Whether the monitor works. If not, nothing may be kept on its word. Cheap, as every miss asks.
  [[nodiscard]] virtual bool works() const noexcept { return true; }

  /// Returns why `works` is false: a constant text.
  [[nodiscard]] virtual const char* why_not() const noexcept { return "the monitor has failed"; }

  /// Returns whether the monitor works, after restarting it where that was necessary and possible. The first thread
  /// that finds it failed counts that, posts that any memory may be gone, and restarts it; a failed attempt is repeated
  /// after `between_attempts`. Meanwhile every other thread gets false, and waits for nothing. Never called with a lock
  /// held that an event could wait for.
  [[nodiscard]] bool ensure_works() noexcept {
    const bool as_ever = works() && !failed_.load(std::memory_order_acquire);
    return as_ever || recover();
  }

  /// Return how often the monitor was found failed, and how often it was found working after that. Registrations that
  /// were made while both stayed the same, and `ensure_works` returned true, were watched all the time.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return recoveries_.load(std::memory_order_acquire); }

  /// Returns why the monitor failed last: a constant text, null when it never did.
  [[nodiscard]] const char* last_failure() const noexcept { return last_failure_.load(std::memory_order_acquire); }

  static constexpr std::chrono::milliseconds between_attempts{100};

 protected:
  /// Restarts the monitor, if it can. Returns whether it worked at a moment during the call: another library may stop
  /// it again before the call returns, which the next `ensure_works` finds. Called by one thread at a time, after
  /// everything kept on the monitor's word was invalidated.
  [[nodiscard]] virtual bool restart() noexcept { return false; }

 private:
  [[nodiscard]] bool recover() noexcept;

  std::atomic<bool> failed_{false};      // from the first time that a thread found it failed until it works again
  std::atomic<bool> recovering_{false};  // a thread is in `recover`, and owns the members below
  std::chrono::steady_clock::time_point next_attempt_{};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> recoveries_{0};
  std::atomic<const char*> last_failure_{nullptr};
};

}  // namespace pinfold::invalidation

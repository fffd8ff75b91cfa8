// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What learns that memory of this process goes away.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pinfold::watch {

/// A source of events for the board, one of its kind for the process. Made when the first cache wants it, and gone with
/// the last. In a child of fork(2) it says nothing more, and its destructor undoes nothing of its parent's.
///
/// Thread-safe. From the return of the function that makes one until its destructor begins, every event that it claims
/// to cover is on the board before an acquire that happens after it can begin.
class monitor {
 public:
  monitor() = default;
  monitor(const monitor&) = delete;
  monitor& operator=(const monitor&) = delete;
  virtual ~monitor() = default;

  [[nodiscard]] virtual const char* name() const noexcept = 0;

  /// Told of whole pages that are about to be registered, before the registrar sees them; for a monitor that has to ask
  /// the kernel about each range. An error when it cannot see what happens to these: then they may not be cached on its
  /// word. Never called with a lock held that an event could wait for.
  [[nodiscard]] virtual result<void> watch(const range& pages) noexcept = 0;

  /// Waits until nothing is under way that has already happened to memory, but is not on the board yet. Called before
  /// every look-up, where the cache is told to be strict. Most monitors have nothing to do.
  virtual void settle() noexcept {}

  /// For a monitor whose events come from the kernel, which cannot write to the board: a word that counts them, and
  /// only goes up; readable as long as this object is there, also in a child. Null for all others.
  [[nodiscard]] virtual const std::atomic<std::uint64_t>* kernel_generation() const noexcept { return nullptr; }

  /// Puts on the board what that word counted before the call, and returns up to which value of it that is done.
  virtual std::uint64_t drain() noexcept { return 0; }

  /// Whether it sees what other processes do to a file that is mapped here.
  [[nodiscard]] virtual bool sees_files() const noexcept { return false; }

  /// False once it has failed: then nothing may be kept on its word. Cheap, as every miss asks.
  [[nodiscard]] virtual bool works() const noexcept { return true; }

  /// Why `works` is false: a constant text.
  [[nodiscard]] virtual const char* why_not() const noexcept { return "it has failed"; }

  /// Returns whether it works, after it was started anew where that was necessary and possible. The first thread that
  /// finds it failed counts that, posts that any memory may be gone, and starts it anew; an attempt that fails is
  /// repeated after `between_attempts`. Every other thread is told false meanwhile, and waits for nothing. Never called
  /// with a lock held that an event could wait for.
  [[nodiscard]] bool ensure_works() noexcept {
    const bool as_ever = works() && !failed_.load(std::memory_order_acquire);
    return as_ever || recover();
  }

  /// How often it was found failed, and how often found working after that. What was registered while both stay the
  /// same, and `ensure_works` said true, was watched all the time.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return recoveries_.load(std::memory_order_acquire); }

  /// Why it failed last: a constant text, null when it never did.
  [[nodiscard]] const char* last_failure() const noexcept { return last_failure_.load(std::memory_order_acquire); }

  static constexpr std::chrono::milliseconds between_attempts{100};

 protected:
  /// Starts it anew, if it can: then `works` is true again. Called by one thread at a time, after all that was kept on
  /// its word was invalidated.
  virtual void restart() noexcept {}

 private:
  [[nodiscard]] bool recover() noexcept;

  std::atomic<bool> failed_{false};      // from the first time that it was found failed until it works again
  std::atomic<bool> recovering_{false};  // one thread is at it, and has what follows
  std::chrono::steady_clock::time_point next_attempt_{};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> recoveries_{0};
  std::atomic<const char*> last_failure_{nullptr};
};

}  // namespace pinfold::watch

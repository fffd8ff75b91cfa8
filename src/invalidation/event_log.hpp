// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The log in which monitors announce that memory is going away, and which caches read: one generation for all, and the
/// last few thousand ranges. It also identifies the process. `docs/understand/protocol.md` states what a reader may
/// conclude.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::invalidation {

/// The source of an event.
enum class source : std::uint8_t { user, hooks, userfaultfd, bpf };

/// The result of reading the event log at a cursor.
enum class read_status : std::uint8_t {
  nothing,     ///< the cursor is at the end
  one,         ///< a range; it may be empty
  everything,  ///< the cursor came too late: any memory may be gone. The ranges still in the log can be read next
  unfinished,  ///< the number is reserved and not published: any memory may be gone, and more until it is published
};

/// The process's log of events, in memory that the kernel wipes in a child of fork(2): a child's log is empty, and a
/// cache copied from the parent finds no matching generation.
///
/// Writing takes no lock, allocates nothing, makes no system call, and is allowed on any thread and in any signal
/// handler. Every acquire that begins after `post` or `reserve` returned sees the event: both increment with a locked
/// instruction.
class event_log {
 public:
  /// Returns this process's event log. Throws `std::bad_alloc`.
  [[nodiscard]] static event_log& here();
  /// Returns null before the first call of `here`; in a child, the wiped event log.
  [[nodiscard]] static event_log* if_there() noexcept { return made.load(std::memory_order_acquire); }

  /// Returns a number that is never 0 in a process that called `here`, and never the same in parent and child. It is 0
  /// in a child that did not call `here`.
  [[nodiscard]] std::uint64_t process() const noexcept { return process_.load(std::memory_order_acquire); }

  /// Returns the word that holds `process()`.
  [[nodiscard]] const std::atomic<std::uint64_t>& process_word() const noexcept { return process_; }

  /// Returns the number of events, plus a base that the parent process does not have.
  [[nodiscard]] const std::atomic<std::uint64_t>& generation() const noexcept { return generation_; }

  /// Returns the number of events in this process.
  [[nodiscard]] std::uint64_t events() const noexcept {
    return generation_.load(std::memory_order_relaxed) & ((std::uint64_t{1} << process_shift) - 1);
  }

  /// Called with each event after it was posted or published, on the same thread, under the rules of `post`.
  using observer = void (*)(const range& gone, source from) noexcept;
  static std::atomic<observer> on_event;

  /// Posts that memory is going away. Call it before the memory can go.
  void post(const range& gone, source from = source::user) noexcept;
  void post_everything(source from = source::user) noexcept { post({0, UINTPTR_MAX}, from); }

  /// Posts in two steps, for a monitor that learns the range later: from `reserve` on, readers of that number wait. One
  /// thread at a time; between the two calls it must not wait, and it publishes soon.
  [[nodiscard]] std::uint64_t reserve() noexcept;
  void publish(std::uint64_t reserved, const range& gone, source from = source::user) noexcept;

  /// Reads the event at `cursor`, and advances `cursor`. A cursor begins as a value of the generation. Waits at most
  /// `wait_limit_ms` for a number that is reserved and not published. Never skips a reserved slot: its writer may still
  /// be freeing memory, and no second event will report that. A cursor that is a whole ring late skips the lost events
  /// if their ranges were all empty (no registered memory); otherwise the result is `everything`.
  [[nodiscard]] read_status read(std::uint64_t& cursor, range& gone) const noexcept {
    source from{};
    return read(cursor, gone, from);
  }
  [[nodiscard]] read_status read(std::uint64_t& cursor, range& gone, source& from) const noexcept;

  static constexpr std::size_t capacity = 8192;
  static constexpr int wait_limit_ms = 100;

 private:
  /// A slot of the ring, written once a round. `mark` is the event's number plus 1 when the range is there, with
  /// `changing` while a writer changes it. A writer that was stopped for a whole round leaves the slot to the newer
  /// event. It may still write the words of its own range: `check`, which depends on number and range, detects that.
  struct slot {
    std::atomic<std::uint64_t> mark{0};
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<std::uint64_t> check{0};
    std::atomic<source> from{};
  };
  static constexpr std::uint64_t changing = std::uint64_t{1} << 63U;

  /// Returns false if the event must be posted again: a reader may have skipped its number.
  [[nodiscard]] bool write(std::uint64_t number, const range& gone, source from) noexcept;
  void note_filled(std::uint64_t number) noexcept;
  [[nodiscard]] bool is_outstanding_before(std::uint64_t number) const noexcept {
    const auto bound = outstanding_.load(std::memory_order_seq_cst);
    return bound != 0 && bound <= number;
  }
  [[nodiscard]] read_status catch_up(std::uint64_t& cursor, std::uint64_t now) const noexcept;
  [[nodiscard]] read_status look_at(const slot& at, std::uint64_t number, range& gone, source& from) const noexcept;

  [[nodiscard]] read_status wait_for(std::uint64_t number, range& gone, source& from) const noexcept;

  /// A process's generations begin at its number, shifted by this. In a child, hooks may count before it has a number;
  /// their counts stay below this bit.
  static constexpr unsigned process_shift = 44;

  static event_log* make();
  static void in_child() noexcept;
  static const int forks_unwatched;  // 0, or why the handler of forks is not registered

  static std::atomic<event_log*> made;

  std::atomic<std::uint64_t> process_{0};
  alignas(64) std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::uint64_t> outstanding_{0};  // plus 1: the number that `reserve` gave out, or less; 0 for none
  std::atomic<std::uint64_t> filled_{0};       // plus 1: the latest number whose range is not empty
  alignas(64) std::array<slot, capacity> slots_{};
};

}  // namespace pinfold::invalidation

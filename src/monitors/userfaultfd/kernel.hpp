// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The operations on a userfaultfd. No function here allocates or locks.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstdint>
#include <sys/types.h>

namespace pinfold::monitors::uffd {

/// A descriptor, and the identity of its open file: a program may close a descriptor that it did not open, and get the
/// number for another file. All userfaultfds share one inode, as do event counters and epoll sets. So the open file is
/// identified by what the kernel stores for it alone: the receiver of its signals (F_SETOWN), though a userfaultfd
/// never sends any.
struct descriptor {
  int number = -1;
  dev_t device = 0;
  ino_t inode = 0;
  bool marked = false;
  pid_t owner = 0;

  /// Returns a descriptor with its present identity; closed on exec, and never 0, 1 or 2, which a program that closed
  /// them expects to be free.
  [[nodiscard]] static descriptor of(int fresh) noexcept;

  /// Stores a signal for the open file, which distinguishes it from others with the same inode, also in children.
  void mark() noexcept;
  /// Stores a thread of this process, which distinguishes it from every other open file for as long as the thread
  /// lives.
  void belong_to(pid_t thread) noexcept;

  /// Returns whether the number refers to this open file. Makes one system call if it belongs to a thread.
  [[nodiscard]] bool is_this() const noexcept;

  /// Returns whether the number refers to this open file, or to one like it whose thread has ended.
  [[nodiscard]] bool is_this_or_left() const noexcept;

  /// Closes the number unless inode and signal show that it is another file by now: also in a child, and after the end
  /// of that thread.
  void close() noexcept;

 private:
  [[nodiscard]] bool looks_like_this() const noexcept;
};

/// Opens a userfaultfd that sends events and never faults.
[[nodiscard]] result<descriptor> open() noexcept;

/// The content of one event.
struct event {
  range gone{};
  range replaced{};  ///< the destination of a moved mapping
  range awaited{};   ///< a page for which a thread waits, because the page is about to leave the watch
  int native = 0;    ///< the error if nothing was read
};

/// Returns 0 if there may be an event, also after an interruption; else an errno value.
[[nodiscard]] int poll_events(int uffd) noexcept;
/// Never waits. Releases the caller of the event that it reads, and no other: a second event in the same read would
/// release its caller before the event log has a number for it.
[[nodiscard]] event read_event(int uffd) noexcept;

// These return 0 or an errno value.
[[nodiscard]] int start_watching(int uffd, const range& pages) noexcept;
/// Walks the page tables.
[[nodiscard]] int stop_watching(int uffd, const range& pages) noexcept;

/// Releases the threads that wait with a fault there: the page stays watched like all others.
void let_go_on(int uffd, const range& pages) noexcept;

enum class traffic : std::uint8_t { none, some, unknown };
/// Whether a call has begun to change mappings and its event is not read, or its caller not released, yet.
[[nodiscard]] traffic traffic_on(int uffd) noexcept;

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What is asked of the kernel through a userfaultfd. No function here allocates or locks.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstdint>
#include <sys/types.h>

namespace pinfold::monitors::uffd {

/// A descriptor, and which file it was: a program may close what it did not open, and get the number for another file.
/// All userfaultfds have one inode, as have event counters and epoll sets. So the open file is told by what the kernel
/// notes for it and for no other: whom it would send signals to (F_SETOWN), which no userfaultfd ever does.
struct descriptor {
  int number = -1;
  dev_t device = 0;
  ino_t inode = 0;
  bool marked = false;
  pid_t owner = 0;

  /// As it is open now; closed on exec, and never one of 0, 1 and 2, which who closed them wants back.
  [[nodiscard]] static descriptor of(int fresh) noexcept;

  /// Has the kernel note a signal for the open file, which tells it from others with the same inode in children, too.
  void mark() noexcept;
  /// Has it note a thread of this process, which tells it from every other open file for as long as the thread lives.
  void belong_to(pid_t thread) noexcept;

  /// Whether the number stands for this open file. One system call where it belongs to a thread.
  [[nodiscard]] bool is_this() const noexcept;

  /// Unless it is another file by now, as far as inode and signal tell: also in a child, and after that thread's end.
  void close() noexcept;
};

void close_number(int number) noexcept;

/// One that sends events and never faults.
[[nodiscard]] result<descriptor> open() noexcept;

/// What one event says of memory.
struct event {
  range gone{};
  range replaced{};  ///< where a mapping was moved to
  range awaited{};   ///< a page that a thread waits for: it is about to leave the watch
  int native = 0;    ///< why nothing was read
};

/// False when it was interrupted, or with what error.
[[nodiscard]] int wait_for_events(int uffd) noexcept;
/// Never waits. Releases the caller of the event that it reads, and no other: a second event in the same read would
/// release its caller before a number is reserved for it on the board.
[[nodiscard]] event read_event(int uffd) noexcept;

// 0 or an errno.
[[nodiscard]] int start_watching(int uffd, const range& pages) noexcept;
/// Walks the page tables.
[[nodiscard]] int stop_watching(int uffd, const range& pages) noexcept;

/// Who waits with a fault there goes on: the page is watched as all others are.
void let_go_on(int uffd, const range& pages) noexcept;

enum class traffic : std::uint8_t { none, some, unknown };
/// Whether some call has begun to change mappings and its event was not read, or its caller not released, yet.
[[nodiscard]] traffic traffic_on(int uffd) noexcept;

}  // namespace pinfold::monitors::uffd

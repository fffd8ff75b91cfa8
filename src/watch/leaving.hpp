// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How a monitor that sees a call coming keeps the caller from waiting for one that the kernel tells: what is about to
/// be unmapped leaves the watch of the other before. `docs/protocol.md` says why nothing stale is found.
#pragma once

#include <pinfold/range.hpp>

namespace pinfold::watch {

/// How pages leave the watch that a descriptor stands for. Never allocates, takes a lock of this process's, or changes
/// errno; any thread, any signal handler, vfork children.
using leave_function = void (*)(int descriptor, const range& pages) noexcept;

/// From now on memory may leave. Where there is no page that a child of fork(2) finds empty, none does. One watch at a
/// time in a process; in a child none, until it has its own.
void let_leave(leave_function how, int descriptor) noexcept;

/// No longer. When it returns nobody uses the descriptor, or whoever does has not run for a second; then nothing leaves
/// in this process any more.
void let_leave_no_more() noexcept;

/// Nothing is told of these pages by the other monitor, unless they are watched again. To be called *before* the event
/// is posted, and only for pages of which the call takes all or nothing. As a `leave_function` otherwise.
void leave(const range& pages) noexcept;

/// Nothing leaves while there is one: for who wants to see what each monitor sees by itself.
class all_stay {
 public:
  all_stay() noexcept;
  ~all_stay();
  all_stay(const all_stay&) = delete;
  all_stay& operator=(const all_stay&) = delete;

 private:
  void* gate_;
};

}  // namespace pinfold::watch

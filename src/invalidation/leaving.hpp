// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Early removal of memory from another monitor's watch. A monitor that sees an unmap coming first takes the pages out
/// of that watch, so that the caller does not wait until that monitor has read the kernel's event. `docs/protocol.md`
/// says why nothing stale is found.
#pragma once

#include <pinfold/range.hpp>

namespace pinfold::watch {

/// Takes pages out of the watch that a descriptor stands for. Never allocates, takes a lock of this process, or changes
/// errno. Callable on any thread, in any signal handler, and in vfork children.
using leave_function = void (*)(int descriptor, const range& pages) noexcept;

/// Enables `leave` for a watch. Does nothing where the kernel cannot wipe a page in a child of fork(2). One watch at a
/// time in a process; in a child none, until the child enables its own.
void let_leave(leave_function how, int descriptor) noexcept;

/// Disables `leave`. When it returns, no thread uses the descriptor, or a thread that does has not run for a second;
/// then `leave` stays disabled while that thread is inside.
void let_leave_no_more() noexcept;

/// Takes pages out of the other monitor's watch: that monitor reports nothing of them, unless they are watched again.
/// Has to be called *before* the event is posted, and only for pages of which the call takes all or nothing. Otherwise
/// as a `leave_function`.
void leave(const range& pages) noexcept;

/// A guard: while one exists, `leave` does nothing. For tests of what each monitor sees by itself.
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

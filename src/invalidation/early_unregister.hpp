// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Early removal of memory from another monitor's watch. A monitor that sees an unmap coming first takes the pages out
/// of that watch, so that the caller does not wait until that monitor has read the kernel's event.
/// `docs/understand/protocol.md` says why nothing stale is found.
#pragma once

#include <pinfold/range.hpp>

namespace pinfold::invalidation {

/// Takes pages out of the watch that a descriptor stands for. Never allocates, takes a lock of this process, or changes
/// errno. Callable on any thread, in any signal handler, and in vfork children.
using unregister_function = void (*)(int descriptor, const range& pages) noexcept;

/// Enables `early_unregister` for a watch. Does nothing where the kernel cannot wipe a page in a child of fork(2). One
/// watch at a time in a process; in a child none, until the child enables its own.
void enable_early_unregister(unregister_function how, int descriptor) noexcept;

/// Disables `early_unregister`. When it returns, no thread uses the descriptor, or a thread that does has not run for a
/// second; then `early_unregister` stays disabled while that thread is inside.
void disable_early_unregister() noexcept;

/// Takes pages out of the other monitor's watch: that monitor reports nothing of them, unless they are watched again.
/// Has to be called *before* the event is posted, and only for pages of which the call takes all or nothing. Otherwise
/// as a `unregister_function`.
void early_unregister(const range& pages) noexcept;

/// A guard: while one exists, `early_unregister` does nothing. For tests of what each monitor sees by itself.
class no_early_unregister {
 public:
  no_early_unregister() noexcept;
  ~no_early_unregister();
  no_early_unregister(const no_early_unregister&) = delete;
  no_early_unregister& operator=(const no_early_unregister&) = delete;

 private:
  void* state_;
};

}  // namespace pinfold::invalidation

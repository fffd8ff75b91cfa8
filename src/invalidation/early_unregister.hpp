// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Removes pages from another monitor's watch early. A monitor that sees an unmap before it happens takes the pages out
/// of that watch, so that the caller does not wait until the other monitor has read the kernel's event.
/// `docs/understand/protocol.md` explains why no stale entry is found.
#pragma once

#include <pinfold/range.hpp>

namespace pinfold::invalidation {

/// Takes pages out of the watch behind `descriptor`. Never allocates, takes a lock of this process, or changes errno.
/// Callable on any thread, in any signal handler, and in vfork children.
using unregister_function = void (*)(int descriptor, const range& pages) noexcept;

/// Enables `early_unregister` for a watch. Does nothing where the kernel cannot wipe a page in a child of fork(2). A
/// process has one watch at a time; a child has none until it enables its own.
void enable_early_unregister(unregister_function how, int descriptor) noexcept;

/// Disables `early_unregister`, and waits until no thread uses the descriptor, for at most a second. A thread that is
/// inside for longer keeps `early_unregister` disabled.
void disable_early_unregister() noexcept;

/// Takes pages out of the other monitor's watch, which then does not report them until they are watched again. Call it
/// *before* posting the event, and only for pages that the call takes all at once or not at all. Otherwise as
/// `unregister_function`.
void early_unregister(const range& pages) noexcept;

/// While a `no_early_unregister` exists, `early_unregister` does nothing. For tests of each monitor alone.
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

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor that asks the kernel: userfaultfd(2), with nothing write-protected and no page fault ever taken, only
/// for its events UNMAP, REMOVE and REMAP. Linux 6.7 or later, any user.
#pragma once

#include "watch/board.hpp"
#include "watch/monitor.hpp"
#include "watch/watched_memory.hpp"

#include <memory>

namespace pinfold::monitors {

/// Sees whoever in this process, in whatever way, calls munmap, mmap over, mremap, brk, or madvise to discard: inline
/// system calls, io_uring's workers and vfork children too. Does not see shmdt, shmat over, remap_file_pages,
/// MADV_GUARD_INSTALL, truncation and hole punching.
///
/// Why nothing stale is found. The kernel lets the caller of munmap go on only once this monitor's thread has read the
/// event, and the thread reserves its place on the board before it reads:
///
///     caller: munmap [memory gone] ......... waits .........| returns, looks up
///     thread:                       reserve [gen + 1] | read | publish
///
/// - Same thread, or any that learns from the caller that the call returned: it finds the generation moved past the
///   number that was reserved for this event, and waits on the board until the range is published there. A read takes
///   one event, never more: of two events in one read, the second would release its caller before it has a number.
///   `tests/protocol/userfaultfd.pml` is the model of this; its variant `BATCHED` is that defect.
/// - Another thread that got the address from the kernel while the caller still waits: UNMAP and REMAP are told after
///   the fact, with the kernel's lock on the mappings given up. Nothing orders that thread's look-up after the read, so
///   it calls `settle`. The kernel counts the event as in flight before it gives that lock up, which the thread had to
///   take in order to get the address, and until the caller was released: so the kernel does not say that all is quiet
///   before the generation has moved. Hence probe first, generation second.
/// - REMOVE is told before the pages go: no look-up that follows the call can be early. A registration that is made
///   while another thread discards the same pages is a race of the program's own.
/// - REMAP: what was at the source is gone, and what was at the destination is something else: both are published.
///
/// Its thread never allocates, frees, or takes a lock, lives on a stack of its own, and has its own table of
/// descriptors: a program that closes all of its own cannot stop it, so callers are always released.
///
/// `watch` takes in whole mappings where the kernel tells their bounds (Linux 6.11), so that they are not split. Its
/// errors: `invalid_range` where nothing is mapped, `unsupported` where the kernel cannot watch or another userfaultfd
/// does, `out_of_resources` at vm.max_map_count, `closed` once it has failed or in a child of fork(2).
///
/// One at a time in a process. `unsupported`: the kernel is too old or has none, or there is one already;
/// `not_permitted`: forbidden, as by a container's seccomp filter; `out_of_resources`: no descriptor, memory or thread.
[[nodiscard]] result<std::unique_ptr<watch::monitor>> make_userfaultfd(watch::board& board,
                                                                       watch::watched_memory& watched);

}  // namespace pinfold::monitors

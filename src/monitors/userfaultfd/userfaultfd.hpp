// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor that uses userfaultfd(2). It write-protects nothing and handles no page fault; it only reads the events
/// UNMAP, REMOVE and REMAP. Linux 6.7 or later, any user.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/monitor.hpp"
#include "invalidation/registered_filter.hpp"

#include <memory>

namespace pinfold::monitors {

/// Sees every munmap, mmap over a mapping, mremap, brk and discarding madvise in this process, also by inline system
/// calls, io_uring's workers and vfork children. Does not see shmdt, shmat over a mapping, remap_file_pages,
/// MADV_GUARD_INSTALL, truncation and hole punching.
///
/// Why no stale registration is found: the kernel releases the caller of munmap only after this monitor's thread has
/// read the event, and the thread reserves a number in the event log before it reads:
///
///     caller: munmap [memory gone] ......... waits .........| returns, looks up
///     thread:                       reserve [gen + 1] | read | publish
///
/// - Same thread, or any thread that learns from the caller that the call returned: it finds the generation past the
///   number that was reserved for this event, and waits on the event log until the range is published there. A read
///   takes one event only: of two events in one read, the second would release its caller before it has a number.
///   `tests/protocol/userfaultfd.pml` is the model of this; its variant `BATCHED` has that defect.
/// - Another thread that got the address from the kernel while the caller still waits: the kernel reports UNMAP and
///   REMAP after the fact, with its lock on the mappings released. Nothing orders that thread's look-up after the read,
///   so the thread calls `wait_for_events`. To get the address, the thread had to take that lock. The kernel counts the
///   event as in flight from before it releases the lock until it releases the caller, so it does not report quiet
///   before the generation has moved. Hence probe first, generation second.
/// - REMOVE is reported before the pages go: no look-up that follows the call can be early. If another thread registers
///   the pages while they are discarded, the program itself has a race.
/// - REMAP: the memory at the source is gone, and the memory at the destination is replaced: both are published.
///
/// The monitor's thread never allocates, frees, or takes a lock. It runs on a stack of its own and has its own table of
/// descriptors: a program that closes all its descriptors cannot stop the thread, so callers are always released. Where
/// the thread cannot read the process's maps in /proc, it goes on reading when the monitor has ended, because memory
/// may be watched still, and the process gets no other such monitor.
///
/// `watch` extends to whole mappings if the kernel reports their bounds (Linux 6.11), so that they are not split. Its
/// errors: `invalid_range` if nothing is mapped, `unsupported` if the kernel cannot watch or another userfaultfd
/// watches, `out_of_resources` at vm.max_map_count, `closed` once the monitor has failed or in a child of fork(2).
///
/// One at a time in a process. `unsupported`: the kernel is too old or lacks userfaultfd, or the process has such a
/// monitor already; `not_permitted`: forbidden, for example by a container's seccomp filter; `out_of_resources`: no
/// descriptor, memory or thread.
[[nodiscard]] result<std::unique_ptr<invalidation::monitor>> make_userfaultfd(invalidation::event_log& event_log,
                                                                              invalidation::registered_filter& watched);

}  // namespace pinfold::monitors

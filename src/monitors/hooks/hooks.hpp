// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor `hooks`: libc's own functions that give memory back post to the event log first. `events.hpp` lists
/// the functions; `install.hpp` describes how their code is changed.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/monitor.hpp"
#include "invalidation/registered_filter.hpp"

#include <memory>

namespace pinfold::monitors {

/// Changes the code of libc and of the dynamic linker in this process. The first monitor changes the code and the last
/// restores it; all monitors that exist at a time must have the same event log and memory. A page of code stays,
/// because a thread could still run it, and so does a jump in unused bytes between functions.
///
/// Sees every call of glibc's functions, also from glibc and the dynamic linker, and `syscall`. Does not see system
/// calls that a program makes by an instruction of its own, nor those of io_uring, nor other processes.
///
/// Thread-safe. Errors: `unsupported` (not x86-64, not glibc, or code that cannot be changed safely), `not_permitted`
/// (the system refuses to make text writable or new code executable), `out_of_resources`. After an error no function is
/// changed.
[[nodiscard]] result<std::unique_ptr<invalidation::monitor>> make_hooks(invalidation::event_log& event_log,
                                                                        invalidation::registered_filter& memory);

/// Finds the functions that `make_hooks` needs, which takes the dynamic linker's lock. Constructors of libraries hold
/// that lock and may make a cache. So a caller that locks a mutex of its own around `make_hooks` calls this first,
/// without that mutex.
void prepare_hooks();

}  // namespace pinfold::monitors

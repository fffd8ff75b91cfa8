// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor `hooks`: libc's own functions that give memory back tell the board first. See `hooks_events.hpp` for
/// which they are, `hooks_install.hpp` for how their code is changed.
#pragma once

#include "watch/board.hpp"
#include "watch/monitor.hpp"
#include "watch/watched_memory.hpp"

#include <memory>

namespace pinfold::monitors {

/// Changes the code of libc and of the dynamic linker in this process; nothing is changed before. The first that is
/// made does it, and the last that goes puts it back: all that are there at a time must be of the same board and
/// memory. What stays is a page of code, which a thread could still be in, and a jump in unused bytes between
/// functions.
///
/// Sees calls of glibc's functions by anybody, glibc and the dynamic linker included, and `syscall`. Does not see
/// system calls that a program makes by an instruction of its own, nor those of io_uring, nor other processes.
///
/// Thread-safe. Errors: `unsupported` (not x86-64, not glibc, or code that cannot be changed safely),
/// `not_permitted` (the system refuses to make text writable or new code executable), `out_of_resources`. After an
/// error no function is changed.
[[nodiscard]] result<std::unique_ptr<watch::monitor>> make_hooks(watch::board& board, watch::watched_memory& memory);

/// Looks for what `make_hooks` needs, which takes the dynamic linker's lock. Constructors of libraries run with that
/// held and may make a cache: so whoever calls `make_hooks` with a lock of his own held calls this before, without.
void prepare_hooks();

}  // namespace pinfold::monitors

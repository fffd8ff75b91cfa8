// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caches and entries of this process as text, written by a signal handler.
#pragma once

#include <pinfold/error.hpp>

#include <cstdint>
#include <string_view>

namespace pinfold {

/// What `dump_on_signal` does if the signal has a handler already.
enum class earlier_handler : std::uint8_t {
  refuse,  ///< return `in_use_conflict`
  chain,   ///< dump, then call the earlier handler
};

/// Installs a handler for `signal` that writes the caches of this copy of the library and their entries as lines of
/// text, which `docs/operate/dump.md` describes: it appends them to the file `pinfold.PID.dump` in `directory`, or
/// writes them to standard error if `directory` is empty. A relative directory is below the working directory of this
/// call.
///
/// The handler takes no lock and allocates nothing: it also works while the thread that it interrupts holds a mutex of
/// a cache. It runs on the alternate signal stack if the thread has one, of which it needs 5 KiB beside what the kernel
/// puts there. It leaves `errno` as it was, and works in a child of fork(2). A signal that comes during a dump causes
/// none. Afterwards the handler calls the earlier one, if there was one. A signal whose default action is to end the
/// process for an error (SIGSEGV, SIGABRT, …) then ends it; others do not.
///
/// A second call for the same signal changes the directory. Any thread may call this. Errors: `invalid_argument` for a
/// signal that cannot be handled, or a directory of more than 4000 bytes; `in_use_conflict` if the signal has a handler
/// and `earlier` is `refuse`; `driver_error` with the `errno` of the system. Nothing changes then.
PINFOLD_EXPORT result<void> dump_on_signal(int signal, std::string_view directory = {},
                                           earlier_handler earlier = earlier_handler::refuse) noexcept;

/// Does what the environment variable `PINFOLD_DUMP_SIGNAL` says: a signal's name without SIG or its number, for
/// example `USR2`; with `,chain` behind it for `earlier_handler::chain`. `PINFOLD_DUMP_DIR` is the directory. Does
/// nothing if the variable is missing or empty. The first cache of the process calls this; a failure is then written to
/// standard error. Errors: those of `dump_on_signal`; `invalid_argument` for an unknown signal.
PINFOLD_EXPORT result<void> dump_on_signal_by_environment() noexcept;

}  // namespace pinfold

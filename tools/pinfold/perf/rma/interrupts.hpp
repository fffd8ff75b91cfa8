// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The end of a rank at SIGINT, SIGTERM and SIGHUP. Libraries that libfabric loads install handlers of these, and
/// libinfinipath's handler calls exit(): in the middle of fi_getinfo() that waits for ever for a lock that the
/// interrupted thread holds. So no thread of a rank is ever interrupted; one thread waits for the signals.
#pragma once

#include <sys/types.h>
#include <vector>

namespace tool {

/// Blocks the signals and removes the handlers that libraries have installed so far. Call it once, before the process
/// has a second thread. Signals that the process ignores stay ignored.
void hold_interrupts();

/// Starts the thread that waits for the signals. The thread passes a signal on to `children` and waits for them, prints
/// the rows that are complete, runs a handler that a provider has installed since (which removes its files), and ends
/// the process by the signal, within 1 s. A child of fork() needs a call of its own.
void take_interrupts(std::vector<pid_t> children);

/// Does not return when a signal is ending the process. A rank that failed calls it before its message, since the
/// failure may be that a child has ended by that signal.
void end_if_interrupted();

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// SIGINT, SIGTERM and SIGHUP during a measurement: the signal's handler prints the results that are complete, kills
/// the program that the tool runs, and ends the process by the signal, within a second even where the output is stuck.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>

namespace tool {

/// Erases the line of the terminal that the cursor is in.
inline constexpr const char* wipe_line = "\r\033[K";

/// Installs the handler. Signals that the process ignores stay ignored; forked children end by the signals.
void handle_interrupts();

/// Replaces the text that an interrupt prints. For one thread.
void print_at_interrupt(std::string text);

/// Names the program that an interrupt kills; 0: none. For one thread.
void kill_at_interrupt(pid_t program) noexcept;

/// Defers interrupts while the final results are printed, which replace those of `print_at_interrupt`. An interrupt
/// that came meanwhile ends the process at the end of this object's life, or after a second. At most one object at a
/// time.
class final_output {
 public:
  final_output() noexcept;
  final_output(const final_output&) = delete;
  final_output& operator=(const final_output&) = delete;
  ~final_output();
};

/// Writes what an interrupt prints, for a program that waits for signals on a thread of its own. If the final results
/// are being printed, waits for that until `limit` instead.
void write_interrupted_output(std::chrono::milliseconds limit);

}  // namespace tool

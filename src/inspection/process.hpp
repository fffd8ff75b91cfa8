// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What /proc says about a process.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

namespace pinfold::inspection {

/// The threads of a process, with their ids in the process's own PID namespace, as the threads themselves know them.
struct threads {
  std::unordered_set<std::int32_t> ids;
  bool all_stopped = false;
};

/// Returns the threads that the process has now; none if there is no such process. Throws `std::bad_alloc`.
[[nodiscard]] threads threads_of(int process);

/// Returns a thread that has not ended, preferably the main thread: the memory of a process cannot be read by the
/// number of an ended thread. Throws `std::bad_alloc`.
[[nodiscard]] int thread_that_runs(int process);

/// Returns the name of the program; empty if there is no such process. Throws `std::bad_alloc`.
[[nodiscard]] std::string command_of(int process);

}  // namespace pinfold::inspection

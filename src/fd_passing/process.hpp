// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Identifies a process although process numbers are reused: by its start time, and by a pidfd, which stays bound to
/// it.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "os/file.hpp"

#include <chrono>
#include <cstdint>
#include <sys/types.h>

namespace pinfold::fd_passing {

using os::file;

/// Returns when the process started, in clock ticks since boot. `peer_gone` if there is no process with that number.
[[nodiscard]] result<std::uint64_t> start_time_of(pid_t process) noexcept;

/// Returns the number that the process has in its own PID namespace. `driver_error` if the system does not show it.
[[nodiscard]] result<pid_t> own_number_of(pid_t process) noexcept;

/// Returns a new exporter in this process, with a unique random number. `unsupported` if /proc does not show this
/// process.
[[nodiscard]] result<exporter_id> new_origin() noexcept;

/// Returns a pidfd of the exporter's process. `peer_gone` if the process has ended, even if another process has its
/// number now; `unsupported` without pidfd_open(2) or /proc; `out_of_resources`.
[[nodiscard]] result<file> open_process(const exporter_id& of) noexcept;

/// A process that dies closes its descriptors, and ends its main thread, shortly before it counts as ended.
inline constexpr std::chrono::milliseconds death_takes{100};

/// Whether the process behind the pidfd has ended.
[[nodiscard]] inline bool has_ended(const file& process) noexcept {
  return os::readable_within(process, std::chrono::milliseconds{0});
}

/// Whether the process's main thread is ending, as it is before the kernel closes the files of a process that ends.
/// Other threads may go on. False if /proc does not show the process.
[[nodiscard]] bool main_thread_ends(pid_t process) noexcept;

/// Whether /proc shows that the descriptor is of another file. Opens nothing: closing that file would drop the locks
/// (fcntl(2), F_SETLK) that this process may have on it.
[[nodiscard]] bool is_another_file(pid_t process, int descriptor, const file_identity& wanted) noexcept;

/// Duplicates the exporter's descriptor. Errors: `peer_gone`, `stale_handle` (the exporter has closed it),
/// `not_permitted`, `out_of_resources`, `unsupported`.
[[nodiscard]] result<file> duplicate_from(const file& process, int descriptor) noexcept;

}  // namespace pinfold::fd_passing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What tells a process from a later one with the same number.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace pinfold::observation {

/// Returns field 22 of /proc/PID/stat, or nothing if there is no such process, or it is a zombie.
[[nodiscard]] std::optional<std::uint64_t> start_time_of(pid_t pid) noexcept;

/// Returns the inode of this process's PID namespace; 0 if unknown.
[[nodiscard]] std::uint64_t pid_namespace() noexcept;

}  // namespace pinfold::observation

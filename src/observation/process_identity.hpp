// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Distinguishes a process from a later one with the same number.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace pinfold::observation {

/// Returns field 22 of /proc/PID/stat; nothing if there is no such process, it is a zombie, or the file cannot be read.
[[nodiscard]] std::optional<std::uint64_t> start_time_of(pid_t pid) noexcept;

/// Returns the same of this process, even where /proc is that of another PID namespace.
[[nodiscard]] std::optional<std::uint64_t> own_start_time() noexcept;

/// What is known of a process.
enum class process_life : unsigned char {
  runs,
  ended,
  unknown,  ///< /proc does not say: no descriptor is left, it hides the process, or it is of another PID namespace
};

/// Returns whether the process with this number and start time runs, in this PID namespace; without a start time,
/// whether any process with this number does.
[[nodiscard]] process_life life_of(pid_t pid, std::optional<std::uint64_t> start_time = std::nullopt) noexcept;

/// Returns the inode of this process's PID namespace; 0 if unknown.
[[nodiscard]] std::uint64_t pid_namespace() noexcept;

}  // namespace pinfold::observation

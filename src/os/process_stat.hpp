// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the kernel shows of a process in /proc/PID/stat (proc(5)).
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include <pinfold/error.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <sys/types.h>

namespace pinfold::os {

/// The fields of /proc/PID/stat that distinguish a process from a later one of the same number, and show whether it
/// runs.
struct process_stat {
  char state = 0;             ///< of the main thread (field 3)
  std::uint64_t flags = 0;    ///< of the main thread: PF_* of the kernel (9)
  std::uint64_t threads = 0;  ///< (20)
  std::uint64_t started = 0;  ///< in clock ticks since the boot (22)
  std::uint64_t stack = 0;    ///< where its stack begins, which exec(2) changes; 0 if the caller may not know it (28)

  /// Returns whether the process has ended. Its main thread may have ended, and so be a zombie, while others run.
  [[nodiscard]] bool ended() const noexcept { return (state == 'Z' || state == 'X') && threads <= 1; }
  /// Returns whether the main thread is ending: the kernel marks it (PF_EXITING) before it closes the process's files.
  [[nodiscard]] bool main_thread_ends() const noexcept { return (flags & 4U) != 0; }
};

/// Returns the fields in a line of /proc/PID/stat, for any program name in field 2; nothing for a line of another form.
[[nodiscard]] std::optional<process_stat> parse_process_stat(std::string_view line) noexcept;

/// Reads /proc/PID/stat. The native code of an error is ENOENT or ESRCH if /proc shows no such process; the code is
/// `driver_error` if the line cannot be parsed.
[[nodiscard]] result<process_stat> read_process_stat(pid_t process) noexcept;

/// Reads /proc/self/stat, also where /proc is that of another PID namespace.
[[nodiscard]] result<process_stat> read_own_stat() noexcept;

/// A path in /proc, written without snprintf(3), which may lock and allocate.
class proc_path {
 public:
  /// `file` below /proc/PID, for example "/stat", and a number behind it, if that is not negative.
  proc_path(pid_t process, std::string_view file, int number = -1) noexcept;
  /// `file` with a number behind it.
  proc_path(std::string_view file, int number) noexcept;
  [[nodiscard]] const char* text() const noexcept { return text_.data(); }

 private:
  void append(std::string_view part) noexcept;
  void append(int number) noexcept;

  std::array<char, 64> text_{};  // zeros after the path
  std::size_t bytes_ = 0;
};

}  // namespace pinfold::os

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The buffer between requests and their trace file. Internal.
#pragma once

#include "os/file.hpp"
#include "os/this_process.hpp"

#include <pinfold/error.hpp>
#include <pinfold/events.hpp>
#include <pinfold/options.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace pinfold::detail {

inline constexpr std::string_view trace_heading = "# pinfold trace 1";

/// Appends lines to a trace. Where a full disk or a limit cuts them off, the trace still ends with a whole line.
/// Returns 0 or an `errno` value.
[[nodiscard]] int append_lines(const os::file& to, std::string_view lines) noexcept;

/// A buffered writer of a trace file. Thread-safe. In a child of fork it drops everything, and takes no lock: a thread
/// of the parent may have had it.
class trace_writer {
 public:
  /// Takes over the file, which must be open for appending. If the file can no longer be written, for example because
  /// the program closed its descriptor, a message on standard error names `name`; no message if `name` is empty.
  trace_writer(os::file file, std::string name);
  ~trace_writer();
  trace_writer(const trace_writer&) = delete;
  trace_writer& operator=(const trace_writer&) = delete;

  /// Makes an exiting process flush `one`.
  static void flush_at_exit(const std::shared_ptr<trace_writer>& one);

  /// Returns the number of a new cache. Writes its line at once, so that a process without requests is visible. Also
  /// writes the budget of `options`, if they are known.
  [[nodiscard]] unsigned add_cache(std::string_view name, const cache_options* options = nullptr);
  void add(unsigned cache, const event& what) noexcept;
  result<void> flush() noexcept;

 private:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] bool inherited() const noexcept { return process_ != os::this_process(); }
  void append(std::string_view line);
  void write_out() noexcept;
  void give_up(int why) noexcept;

  const os::file file_;
  const std::string name_;
  const std::uint64_t process_ = os::this_process();
  const pid_t pid_;
  const std::string namespace_;  // after the number of a cache: empty, or a dot and the PID namespace
  std::mutex mutex_;
  std::string buffer_;
  clock::time_point written_;
  std::optional<error> failure_;
};

}  // namespace pinfold::detail

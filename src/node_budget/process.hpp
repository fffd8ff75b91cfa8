// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The process that owns a slot, as far as this process can see.
#pragma once

#include <cstdint>
#include <string>

namespace pinfold::node {

/// A program in a process, by numbers that are not reused.
struct process_id {
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  ///< in clock ticks since the boot; 0: unknown
  std::uint64_t stack = 0;    ///< where its stack began, which exec(2) changes if addresses are random; 0: unknown
  std::uint64_t namespace_inode = 0;  ///< of its PID namespace; 0: unknown

  [[nodiscard]] static process_id here() noexcept;
  /// Returns whether this program is known to run. Only programs in `own_namespace`, the caller's PID namespace, can be
  /// known.
  [[nodiscard]] bool known_to_run(std::uint64_t own_namespace) const noexcept;
};

/// Reads a file of proc or sysfs as text, cut to a fixed size. Returns an empty text if there is none. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::string read_text(const char* path);

}  // namespace pinfold::node

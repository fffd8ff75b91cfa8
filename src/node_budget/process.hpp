// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which process owns a slot, as far as this process can see.
#pragma once

#include <cstdint>
#include <string>

namespace pinfold::node {

/// A program that runs in a process, by numbers that are not used again for another.
struct process_id {
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  ///< in clock ticks since the boot; 0: unknown
  std::uint64_t stack = 0;    ///< where its stack began: changes with exec(2), where addresses are random; 0: unknown
  std::uint64_t namespace_inode = 0;  ///< of its PID namespace; 0: unknown

  /// Returns the calling program.
  [[nodiscard]] static process_id here() noexcept;
  /// Whether this program is known to run. `own_namespace` is the caller's PID namespace: only programs in it are.
  [[nodiscard]] bool known_to_run(std::uint64_t own_namespace) const noexcept;
};

/// Reads a file of proc or sysfs as text; what does not fit is left out. Returns an empty text if there is none. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::string read_text(const char* path);

}  // namespace pinfold::node

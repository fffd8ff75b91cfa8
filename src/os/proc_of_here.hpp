// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether /proc knows the processes of this PID namespace by their numbers.
#pragma once

#include <array>
#include <charconv>
#include <system_error>
#include <unistd.h>

namespace pinfold::os {

/// Returns whether /proc shows the PID namespace of this process: a new namespace may still have its parent's /proc.
/// False where /proc is not mounted. Needs no descriptor.
[[nodiscard]] inline bool proc_is_of_here() noexcept {
  std::array<char, 24> text{};
  const auto size = ::readlink("/proc/self", text.data(), text.size());
  pid_t shown = 0;
  return size > 0 && std::from_chars(text.data(), text.data() + size, shown).ec == std::errc{} && shown == ::getpid();
}

}  // namespace pinfold::os

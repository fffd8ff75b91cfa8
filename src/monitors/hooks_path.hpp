// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where a call of a function really goes: through which jumps, and whether one of our hooks is among them.
#pragma once

#include "monitors/hooks_guard.hpp"
#include "monitors/hooks_x86_64.hpp"

#include <cstdint>
#include <optional>

namespace pinfold::monitors {

/// Stands right before each stub, of this copy of the library and of every other in the process, and tells which
/// instruction has been replaced for it. A stub is followed by that instruction, moved, through which the call goes on
/// as it would have without the stub.
[[nodiscard]] x86_64::code stub_mark(std::uintptr_t replaced) noexcept;

/// Returns true if the jump at `jump` leads to a stub for the instruction at `at`, which does not lead to it any more.
[[nodiscard]] bool left_over(std::uintptr_t jump, std::uintptr_t at) noexcept;

using is_stub_of_ours = bool (*)(std::uintptr_t at) noexcept;

/// Follows the jumps from `entry` on, through the hooks of other copies of this library. Returns the words that led to
/// a stub of ours, as they were then; nothing if none does, or if they change meanwhile. Any thread.
[[nodiscard]] std::optional<guard::words> path_to_us(std::uintptr_t entry, is_stub_of_ours ours) noexcept;

}  // namespace pinfold::monitors

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Follows a call of a function through the jumps in place, and finds whether one of our hooks is among them.
#pragma once

#include "monitors/hooks/guard.hpp"
#include "monitors/hooks/x86_64.hpp"

#include <cstdint>
#include <optional>

namespace pinfold::monitors {

/// Returns the mark that precedes each stub, of this and of every other copy of the library in the process. It encodes
/// which instruction was replaced for the stub. That instruction, moved, follows the stub, and through it the call
/// continues as without the stub.
[[nodiscard]] x86_64::code stub_mark(std::uintptr_t replaced) noexcept;

/// Returns true if the jump at `jump` leads to a stub for the instruction at `at`, which no longer leads to the jump.
[[nodiscard]] bool left_over(std::uintptr_t jump, std::uintptr_t at) noexcept;

using is_stub_of_ours = bool (*)(std::uintptr_t at) noexcept;

/// Follows the jumps from `entry`, through the hooks of other copies of this library. Returns the words on the path to
/// a stub of ours, with the values read; nothing if no stub of ours is on it, or if the words change meanwhile. For any
/// thread.
[[nodiscard]] std::optional<guard::words> path_to_us(std::uintptr_t entry, is_stub_of_ours ours) noexcept;

}  // namespace pinfold::monitors

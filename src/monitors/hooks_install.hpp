// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The jumps at the functions' entries: putting them in, taking them out, and what is left of them.
///
/// A call goes: entry -> (short jump -> unused bytes near it ->) jump -> stub on our page -> replacement -> the moved
/// first instruction on our page -> the rest of the original. What somebody else put at the entry before us is moved
/// like any instruction, so that it is still called; what somebody puts there after us is left alone.
#pragma once

#include "monitors/hooks_find.hpp"

#include <pinfold/error.hpp>

namespace pinfold::monitors::jumps {

/// All that are not in place, or none of them and an error. Not at the same time as `install` or `remove`.
[[nodiscard]] result<void> install(const found_functions& found) noexcept;

/// Puts back what stood there, except under another's later change, through which calls may still come.
void remove() noexcept;

/// False when somebody has put back libc's own code over ours. Any thread, after `install`.
[[nodiscard]] bool in_place() noexcept;

}  // namespace pinfold::monitors::jumps

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Installs and removes the jumps at the functions' entries, and reuses those that earlier ones left behind.
///
/// The path of a call: entry -> (short jump -> unused bytes near it ->) jump -> stub on our page -> replacement -> the
/// moved first instruction on our page -> the rest of the original. A jump that another library had installed before is
/// moved like any instruction, so calls still reach that library. A library that patches the entry after us may bypass
/// our jump: a new jump of ours goes on top, continues with that library's code, and that may continue with our older
/// jump.
#pragma once

#include "monitors/hooks/code_lock.hpp"
#include "monitors/hooks/find.hpp"
#include "monitors/hooks/text_lock.hpp"

#include <pinfold/error.hpp>

namespace pinfold::monitors::jumps {

/// Makes every entry lead to a replacement; on an error it changes nothing further. Not concurrent with `install` or
/// `remove` of this copy of the library; `alone` keeps other copies in the process out, and `code`
/// other threads' calls of mprotect, as soon as that is hooked.
[[nodiscard]] result<void> install(std::span<const found_functions> found, const text_lock& alone,
                                   code_lock& code) noexcept;

/// Restores the original code, except under another library's later change, through which calls may still come, or
/// while another library changes the code. Not concurrent with `install` or `remove` of this copy of the library.
void remove(code_lock& code) noexcept;

/// Returns true if every entry leads to one of our replacements: directly, or through hooks of other copies of this
/// library. Call it after `install`, and not concurrently with `install` or `remove`. If true, `guard` compares those
/// paths from now on.
[[nodiscard]] bool lead_to_us(std::span<const found_functions> found) noexcept;

}  // namespace pinfold::monitors::jumps

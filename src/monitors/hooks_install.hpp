// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The jumps at the functions' entries: putting them in, taking them out, and what is left of them.
///
/// A call goes: entry -> (short jump -> unused bytes near it ->) jump -> stub on our page -> replacement -> the moved
/// first instruction on our page -> the rest of the original. What another library put at the entry before us is moved
/// like any instruction, so that it is still called. What another library puts over ours later may go past us: a new
/// jump of ours is put on top of that, which leads to it, and which it may lead back to an older one of ours.
#pragma once

#include "monitors/hooks_find.hpp"
#include "monitors/hooks_text_lock.hpp"

#include <pinfold/error.hpp>

namespace pinfold::monitors::jumps {

/// Makes every entry lead to a replacement: all, or no further change and an error. Not at the same time as `install`
/// or `remove` of this copy of the library; `alone` keeps other copies in the process out.
[[nodiscard]] result<void> install(std::span<const found_functions> found, const text_lock& alone) noexcept;

/// Puts back what stood there, except under another library's later change, through which calls may still come.
void remove() noexcept;

/// Returns true if every entry leads to one of our replacements: directly, or through hooks of other copies of this
/// library. After `install`; not at the same time as `install` or `remove`. Where it does, `guard` compares the way
/// there from now on.
[[nodiscard]] bool lead_to_us(std::span<const found_functions> found) noexcept;

}  // namespace pinfold::monitors::jumps

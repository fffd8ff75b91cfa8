// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Standard output of the tool's programs.
#pragma once

namespace tool {

/// Each line is written when it ends, into pipes and files too: a reader sees it at once, and Ctrl-C does not lose it.
/// Called before anything is printed.
void write_line_by_line() noexcept;

/// Writes what is left, and returns `status`; 1, with a complaint on standard error, when something could not be
/// written and `status` says that all went well.
[[nodiscard]] int after_writing_all(int status) noexcept;

}  // namespace tool

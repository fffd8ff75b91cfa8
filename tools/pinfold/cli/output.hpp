// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Standard output of the tool's programs.
#pragma once

namespace tool {

/// Writes each line when it ends, into pipes and files too: a reader sees it at once, and Ctrl-C does not lose it. Call
/// it before anything is printed.
void write_line_by_line() noexcept;

/// Writes the rest of the output, and returns `status`; returns 1, with a complaint on standard error, when some output
/// could not be written and `status` is 0.
[[nodiscard]] int after_writing_all(int status) noexcept;

}  // namespace tool

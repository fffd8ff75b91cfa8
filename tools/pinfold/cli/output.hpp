// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The output and the end of the tool's programs.
#pragma once

#include <exception>
#include <functional>
#include <string>

namespace tool {

enum exit_status : int { success = 0, something_failed = 1, wrong_usage = 2 };

/// Sets the words that begin a complaint: the program and its subcommand. They are `pinfold` before the first call.
void name_program(std::string words);

/// Prints the problem on standard error, after the output so far. Returns `status`.
int complain(const std::string& head, const std::exception& problem, exit_status status) noexcept;

/// The body of a program's `main`. Keeps files that it opens from becoming standard output where that is closed. Runs
/// `work`, which returns the exit status. Prints an exception that it throws, except a `usage_failure` without text,
/// which was printed already. Returns 1, with a complaint, when some output could not be written and the status is 0.
[[nodiscard]] int run_to_exit(const std::function<int()>& work) noexcept;

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Programs that the tool runs to be told something.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tool {

/// What a program said on standard output, and how it ended, as wait(2) tells.
struct finished_program {
  std::string output;
  int status = 0;
};

/// Runs `path` with these arguments until it ends. Its standard error is the tool's. Throws `failure` when it cannot be
/// run, or is ended because it took longer than `limit`.
[[nodiscard]] finished_program run_program(std::string path, std::vector<std::string> arguments,
                                           std::chrono::seconds limit);

/// `exited with 1`, `was ended by signal 9`.
[[nodiscard]] std::string ending_of(int status);

}  // namespace tool

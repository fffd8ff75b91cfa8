// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Programs that the tool runs for their output.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tool {

/// A program's standard output, and its status as of wait(2).
struct finished_program {
  std::string output;
  int status = 0;
};

/// Runs `path` with these arguments until it ends. Its standard error is the tool's. Throws `failure` when it cannot be
/// run, or is ended because it took longer than `limit`.
[[nodiscard]] finished_program run_program(std::string path, std::vector<std::string> arguments,
                                           std::chrono::seconds limit);

/// Lets a program of `run_program` end with the tool that runs it, and by no other signal: no handler that a library
/// installs in this process runs. Call it before libraries are loaded.
void end_with_parent() noexcept;

/// Returns the path of the tool itself; empty if the kernel does not tell it.
[[nodiscard]] std::filesystem::path tool_path();

/// Returns for example `exited with 1` or `was ended by signal 9`.
[[nodiscard]] std::string ending_of(int status);

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The report of `pinfold info` on GPUs, which every figure on GPUs needs beside it.
#pragma once

#include "cli/report.hpp"

#include <string>

namespace tool {

/// Returns `driver` (its version, or why there is none), `works`, `emulated`, and `devices`. Loads the driver: a
/// process that is forked off afterwards has none.
[[nodiscard]] json cuda_facts();

/// Prints the same for people.
void print_cuda(const json& facts);

/// Returns the driver and one of its devices as one line.
[[nodiscard]] std::string cuda_line(const json& facts, std::size_t device);

}  // namespace tool

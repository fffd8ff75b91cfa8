// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What `pinfold info` says about GPUs, and what every figure of theirs needs beside it.
#pragma once

#include "report.hpp"

#include <string>

namespace tool {

/// `driver` (its version, or why there is none), `works`, `emulated`, and `devices`. Loads the driver: a process that
/// is forked off afterwards has none.
[[nodiscard]] json cuda_facts();

/// The same for people.
void print_cuda(const json& facts);

/// The driver and one of its devices as one line.
[[nodiscard]] std::string cuda_line(const json& facts, std::size_t device);

}  // namespace tool

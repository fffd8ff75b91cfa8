// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Binds threads and processes to CPUs.
#pragma once

#include <pinfold/error.hpp>

#include <vector>

namespace tool {

/// Returns the CPUs on which this thread may run.
[[nodiscard]] pinfold::result<std::vector<int>> allowed_cpus();

/// Keeps this thread, and the threads and processes that it starts from now on, on one CPU.
[[nodiscard]] pinfold::result<void> run_only_on(int cpu) noexcept;

}  // namespace tool

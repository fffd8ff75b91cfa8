// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Reads what a core file says about its process.
#pragma once

#include "inspection/memory.hpp"
#include "inspection/process.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pinfold::inspection {

struct core_file {
  int process = 0;
  std::string command;
  threads running;                     ///< ids as the process knows them; gdb writes ids from outside its namespace
  std::vector<std::uintptr_t> begins;  ///< where files may begin
};

/// Reads the core file that `file` reads, and makes `file` read the process's memory in it from then on. Returns
/// nothing if it is no core file of a 64-bit process. Throws `std::bad_alloc`.
[[nodiscard]] std::optional<core_file> read_core_file(memory& file);

}  // namespace pinfold::inspection

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the tables of all copies of the library in a process.
#pragma once

#include "inspection/memory.hpp"

#include <cstdint>
#include <istream>
#include <vector>

namespace pinfold::inspection {

/// Returns the addresses where the first bytes of files are mapped, from the lines of a /proc/PID/maps. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::vector<std::uintptr_t> begins_of_files(std::istream& maps);

/// Returns the addresses of the tables that notes of programs and libraries name, which may be mapped at `begins`.
/// Reads the notes in the process's memory, so it finds stripped, deleted and static copies, also in other mount
/// namespaces. Throws `std::bad_alloc`.
[[nodiscard]] std::vector<std::uintptr_t> find_tables(memory& in, const std::vector<std::uintptr_t>& begins);

}  // namespace pinfold::inspection

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the tables of all copies of the library in a process.
#pragma once

#include "inspection/memory.hpp"

#include <cstdint>
#include <istream>
#include <vector>

namespace pinfold::inspection {

/// Returns the addresses of the tables that notes in the process's mapped programs and libraries name. `maps` has the
/// lines of its /proc/PID/maps. Reads the notes in the memory of the process, so that stripped, deleted and static
/// copies are found, also in other mount namespaces. Throws `std::bad_alloc`.
[[nodiscard]] std::vector<std::uintptr_t> find_tables(memory& in, std::istream& maps);

}  // namespace pinfold::inspection

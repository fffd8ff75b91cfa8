// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The size of a page.
#pragma once

#include <cstddef>
#include <unistd.h>

namespace pinfold::os {

/// Returns the size of a page. Not cached: the C library has it at hand, and the initialization of a function's static
/// variable could be held by a thread that a child of fork(2) does not have.
[[nodiscard]] inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace pinfold::os

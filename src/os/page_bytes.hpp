// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The size of a page.
#pragma once

#include <cstddef>
#include <unistd.h>

namespace pinfold::os {

/// Returns the size of a page. Not cached: the C library has it at hand, and a child of fork(2) could wait for ever for
/// the initialization of a static variable by a thread that it does not have.
[[nodiscard]] inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace pinfold::os

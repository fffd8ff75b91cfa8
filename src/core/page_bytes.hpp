// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The size of a page.
#pragma once

#include <cstddef>
#include <unistd.h>

namespace pinfold::core {

/// Asked each time: the C library has it at hand, and a static variable of a function could be held by a thread that a
/// child of fork(2) does not have.
[[nodiscard]] inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace pinfold::core

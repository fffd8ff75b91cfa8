// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>

namespace pinfold::verbs {

/// Returns the error for an errno of ibv_reg_mr. `pinned` bytes would have been pinned; `full`: this process alone has
/// as many regions as the device has room for.
[[nodiscard]] error refused_open(int native, std::size_t pinned, bool full) noexcept;

/// Returns the error for an errno of ibv_dereg_mr. `windows`: the region may have memory windows.
[[nodiscard]] error refused_close(int native, bool windows) noexcept;

}  // namespace pinfold::verbs

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether the hooks suffice without a monitor that sees system calls past libc (R54).
#pragma once

#include "invalidation/monitor.hpp"

#include <memory>
#include <string>

namespace pinfold::monitors {

/// The hooks as the only monitor of a set, which keep registrations only while no other code enters the kernel; or why
/// they do not suffice.
struct hooks_alone {
  std::shared_ptr<invalidation::monitor> monitor;
  std::string why_not;
};

/// Scans all code of the process, or only new code if a cache already relies on the hooks alone. `hooks` is the monitor
/// in use. For any thread. Throws `std::bad_alloc`.
[[nodiscard]] hooks_alone trust_hooks_alone(std::shared_ptr<invalidation::monitor> hooks);

}  // namespace pinfold::monitors

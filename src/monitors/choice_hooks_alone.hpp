// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether the hooks suffice without a monitor that sees system calls past libc (R54).
#pragma once

#include "watch/monitor.hpp"

#include <memory>
#include <string>

namespace pinfold::monitors {

/// The hooks as a set may have them alone: they keep only while there is no such other code. Or why they do not
/// suffice.
struct hooks_alone {
  std::shared_ptr<watch::monitor> monitor;
  std::string why_not;
};

/// Looks through all code of the process, when no cache relies on the hooks alone so far; else through what is new.
/// `hooks` is the monitor in use. Any thread. Throws `std::bad_alloc`.
[[nodiscard]] hooks_alone trust_hooks_alone(std::shared_ptr<watch::monitor> hooks);

}  // namespace pinfold::monitors

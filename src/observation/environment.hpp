// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The environment variable PINFOLD_STATS.
#pragma once

namespace pinfold::observation {

/// Returns whether every cache of the process publishes its statistics. Prints a line on standard error, once, for a
/// value that is neither `on` nor `off`.
[[nodiscard]] bool wanted_by_environment() noexcept;

}  // namespace pinfold::observation

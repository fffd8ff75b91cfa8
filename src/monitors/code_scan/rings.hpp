// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds io_uring rings of this process: requests queued there take memory away without a system call that a hook sees.
#pragma once

namespace pinfold::monitors::code_scan {

/// Returns whether this process has an io_uring, by its descriptors. True if they cannot be listed.
[[nodiscard]] bool has_rings() noexcept;

}  // namespace pinfold::monitors::code_scan

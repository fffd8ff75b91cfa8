// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether this process has an io_uring: what is queued there takes memory away without a system call that a hook sees.
#pragma once

namespace pinfold::monitors::code_scan {

/// By its descriptors. True where those cannot be listed.
[[nodiscard]] bool has_rings() noexcept;

}  // namespace pinfold::monitors::code_scan

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/error.hpp>

namespace pinfold::libfabric {

/// Returns the error for a positive fi_errno of fi_mr_regattr, fi_mr_bind or fi_mr_enable. `many`: the registrar alone
/// has as many regions as suit the domain.
[[nodiscard]] error refused_open(int native, bool many) noexcept;

/// Returns the error for FI_EBUSY or FI_EAGAIN of fi_close: the region is still open.
[[nodiscard]] error refused_close(int native) noexcept;

}  // namespace pinfold::libfabric

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Copies bytes as the device's copy engines would.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

/// Returns whether the range is accessible. Device addresses must be mapped with the wanted right; all others count as
/// host memory of this process. The caller holds the driver's lock, shared.
bool accessible(driver& all, device_pointer at, std::uint64_t bytes, access_rights wanted) noexcept;

/// Returns invalid_value for inaccessible memory. Takes the driver's lock.
status copy(device_pointer to, device_pointer from, std::uint64_t bytes) noexcept;

}  // namespace emulated_cuda

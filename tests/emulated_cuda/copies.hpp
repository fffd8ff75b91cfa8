// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Moving bytes, as the device's copy engines would.
#pragma once

#include "driver.hpp"

namespace emulated_cuda {

/// Device addresses must be mapped, and with the right to it; any others are taken for host memory of this process.
/// Under the driver's lock, shared.
bool accessible(driver& all, device_pointer at, std::uint64_t bytes, access_rights wanted) noexcept;

/// invalid_value for what is not accessible. Takes the driver's lock.
status copy(device_pointer to, device_pointer from, std::uint64_t bytes) noexcept;

}  // namespace emulated_cuda

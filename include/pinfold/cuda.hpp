// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The CUDA devices of this host. pinfold needs no CUDA to build, nor to run its other parts: it loads the driver's
/// library when the first CUDA object needs it.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace pinfold {

/// One device, as the driver describes it.
struct cuda_device_info {
  int ordinal = 0;                     ///< the number that every `device` option takes
  std::string name;                    ///< contains "emulated" if the driver is pinfold's emulation for tests
  std::array<std::byte, 16> uuid{};    ///< the same in every process, whatever CUDA_VISIBLE_DEVICES says
  std::size_t total_bytes = 0;         ///< of the device's memory
  bool shares_segments = false;        ///< memory of cuMemCreate can be shared, as POSIX descriptors
  bool shares_pools = false;           ///< memory of pools can be shared, as POSIX descriptors
  bool registers_host_memory = false;  ///< `cuda_host_registrar` works
};

/// Returns the devices that this process may use. Loads the driver; thread-safe; allocates. The first call is slow.
///
/// Errors: `unsupported` without a driver, without a device, or with a driver that is too old; the message says which.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<cuda_device_info>> cuda_devices();

/// Returns the driver's version as text for people; without a driver, the dynamic linker's error message. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string cuda_driver_text();

}  // namespace pinfold

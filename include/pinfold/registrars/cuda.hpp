// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What this host has of CUDA. Nothing of CUDA is needed to build pinfold, or to run the rest of it: the driver's
/// library is loaded when the first CUDA object needs it.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace pinfold {

/// One device, as the driver tells of it.
struct cuda_device_info {
  int ordinal = 0;                     ///< the number that every `device` option takes
  std::string name;                    ///< "emulated" is part of it where the driver is pinfold's stand-in for tests
  std::array<std::byte, 16> uuid{};    ///< the same in every process, whatever CUDA_VISIBLE_DEVICES says
  std::size_t total_bytes = 0;         ///< of its memory
  bool shares_segments = false;        ///< memory of cuMemCreate can be shared, as POSIX descriptors
  bool shares_pools = false;           ///< memory of pools can be shared, as POSIX descriptors
  bool registers_host_memory = false;  ///< `cuda_host_registrar` works
};

/// The devices that this process may use. Loads the driver; thread-safe; allocates. Slow the first time.
///
/// Errors: `unsupported` without a driver, without a device, or with a driver that is too old; the sentence says which.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<cuda_device_info>> cuda_devices();

/// The driver for people: its version, or why there is none, in the dynamic linker's words. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string cuda_driver_text();

}  // namespace pinfold

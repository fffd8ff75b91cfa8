// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Explains why the driver refuses to open a handle.
#pragma once

#include "cuda/driver.hpp"
#include "importers/cuda_ipc/handle.hpp"

namespace pinfold::cuda_ipc {

/// Returns `peer_gone` if the exporter's process has ended, `unsupported` if this process does not see the device,
/// `stale_handle` if the driver rejects the handle, else as `cuda::as_error`.
[[nodiscard]] error refusal_of(const cuda::driver_table& calls, cuda::status answer,
                               const cuda_ipc_handle& handle) noexcept;

/// Returns why the driver refuses to import the memory's pool: `unsupported` if this process does not see the device,
/// else as `cuda::as_error`.
[[nodiscard]] error pool_refusal_of(const cuda::driver_table& calls, cuda::status answer,
                                    const cuda_ipc_handle& handle) noexcept;

}  // namespace pinfold::cuda_ipc

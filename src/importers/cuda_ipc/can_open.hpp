// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds out why a handle could not be opened, without opening it.
#pragma once

#include "importers/cuda_ipc/handle.hpp"

namespace pinfold::cuda_ipc {

/// Returns `unsupported` for a handle of another host, and for memory of this process itself.
[[nodiscard]] result<void> is_for_import(const cuda_ipc_handle& handle) noexcept;

/// Returns whether the device with that ordinal could open the handle now. Errors as `cuda_ipc_importer::can_open`.
[[nodiscard]] result<void> can_open(int device, const cuda_ipc_handle& handle, bool confirm) noexcept;

}  // namespace pinfold::cuda_ipc

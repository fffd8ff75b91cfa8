// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Opens memory of other processes' pools.
#pragma once

#include "cuda/context.hpp"
#include "fd_passing/connection.hpp"
#include "importers/cuda_ipc/opened.hpp"

namespace pinfold::cuda_ipc {

/// Opens the memory of a pool's handle. Imports the pool with the first of its memory that is open in this process, and
/// destroys it with the last. `already_mapped` if other open memory has the address: the driver does not count, so
/// closing one would free the other.
[[nodiscard]] result<opened_memory> open_pooled(const cuda::primary_context& in, fd_passing::connection& from,
                                                const cuda_ipc_handle& handle) noexcept;

/// Frees the memory. `life_is_over`: the context, and the memory with it, is already gone.
[[nodiscard]] cuda::status close_pooled(const cuda::driver_table& calls, opened_memory& memory,
                                        bool life_is_over) noexcept;

}  // namespace pinfold::cuda_ipc

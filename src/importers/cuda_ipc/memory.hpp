// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Opens and closes memory through the driver, by kind of memory.
#pragma once

#include "cuda/context.hpp"
#include "fd_passing/connection.hpp"
#include "importers/cuda_ipc/opened.hpp"

namespace pinfold::cuda_ipc {

/// Opens the handle; memory of segments at its place in `window`, if that is not null. Errors as
/// `cuda_ipc_importer::open`.
[[nodiscard]] result<opened_memory> open_memory(const cuda::primary_context& in, fd_passing::connection_table& links,
                                                const cuda_ipc_handle& handle,
                                                const std::shared_ptr<window>& window = nullptr) noexcept;

/// Whether the context in which the memory was opened is gone, and the memory with it.
[[nodiscard]] bool is_gone(const cuda::primary_context& in, const opened_memory& memory) noexcept;

/// Closes the memory. Memory whose context is gone counts as closed.
[[nodiscard]] result<void> close_memory(const cuda::primary_context& in, opened_memory& memory) noexcept;

}  // namespace pinfold::cuda_ipc

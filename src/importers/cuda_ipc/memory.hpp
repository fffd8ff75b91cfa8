// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Opens and closes memory through the driver, by kind of memory.
#pragma once

#include "cuda/context.hpp"
#include "fd_passing/connection.hpp"
#include "importers/cuda_ipc/opened.hpp"

#include <optional>

namespace pinfold::cuda_ipc {

/// The arguments of an open besides the context and the handle.
struct open_options {
  std::shared_ptr<window> in{};  ///< the window in which segments have their place; null: at addresses of their own
  bool confirm = true;           ///< as `cuda_ipc_importer_options::confirm`
};

/// Opens the handle. Errors as `cuda_ipc_importer::open`; `left` gets memory that must not be used, and that the driver
/// refuses to close.
[[nodiscard]] result<opened_memory> open_memory(const cuda::primary_context& in, fd_passing::connection_table& links,
                                                const cuda_ipc_handle& handle, const open_options& how,
                                                std::optional<opened_memory>& left) noexcept;

/// Asks the exporter whether it still has all the memory that the handle names. The driver does not compare: it opens
/// whatever lies at the handle's base, even other memory that the exporter has allocated there since. Buffer ids are
/// never reused, so an answer after the open is about the opened memory.
[[nodiscard]] result<void> confirm(fd_passing::connection_table& links, const cuda_ipc_handle& handle) noexcept;

/// Returns whether the context in which the memory was opened is gone, and the memory with it.
[[nodiscard]] bool is_gone(const cuda::primary_context& in, const opened_memory& memory) noexcept;

/// Closes the memory. Memory whose context is gone counts as closed.
[[nodiscard]] result<void> close_memory(const cuda::primary_context& in, opened_memory& memory) noexcept;

}  // namespace pinfold::cuda_ipc

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of several physical segments: passes them to a peer, and maps them at one contiguous address.
///
/// A peer asks the exporter's socket for the serial of the memory, and gets a sealed memfd with the size of each
/// segment. Then it asks for the serials after that, one for each segment, and gets the driver's descriptor of each.
#pragma once

#include "cuda/context.hpp"
#include "fd_passing/connection.hpp"
#include "importers/cuda_ipc/opened.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace pinfold::cuda_ipc {

/// Makes the sealed memfd that lists segments. `out_of_resources`.
[[nodiscard]] result<os::file> listed(std::span<const std::size_t> segments) noexcept;

/// Returns the segments in such a memfd. `invalid_handle` if it is none, or if the segments do not add up to `total`
/// bytes.
[[nodiscard]] result<std::vector<std::size_t>> read_list(const os::file& list, std::size_t total) noexcept;

/// Fetches all segments of the handle and maps them side by side: at their place in `window`, or, without a window, at
/// addresses of their own.
[[nodiscard]] result<opened_memory> open_segments(const cuda::primary_context& in, fd_passing::connection& from,
                                                  const cuda_ipc_handle& handle,
                                                  const std::shared_ptr<window>& window) noexcept;

/// Unmaps all that is still mapped. After a failure a later call continues where the failed one stopped.
[[nodiscard]] cuda::status close_segments(const cuda::driver_table& calls, opened_memory& memory) noexcept;

}  // namespace pinfold::cuda_ipc

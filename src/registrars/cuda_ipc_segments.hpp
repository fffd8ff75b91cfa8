// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of several physical segments: how they pass to a peer, and how they are mapped at one contiguous address.
///
/// A peer asks the exporter's socket for the serial of the memory, and gets a sealed memfd with the bytes of each
/// segment; then for the serials after that, one for each segment, and gets the driver's descriptor of it.
#pragma once

#include "exchange/link.hpp"
#include "registrars/cuda_context.hpp"
#include "registrars/cuda_ipc_opened.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace pinfold::cuda_ipc {

/// The sealed memfd that lists segments. `out_of_resources`.
[[nodiscard]] result<exchange::file> listed(std::span<const std::size_t> segments) noexcept;

/// What such a memfd lists. `invalid_handle` when it is none, or when the segments are not `total` bytes in all.
[[nodiscard]] result<std::vector<std::size_t>> read_list(const exchange::file& list, std::size_t total) noexcept;

/// Fetches all segments of the handle and maps them side by side.
[[nodiscard]] result<opened_memory> open_segments(const cuda::primary_context& in, exchange::link& from,
                                                  const cuda_ipc_handle& handle) noexcept;

/// Unmaps what is left of it. After a failure what is done is done, and a later call goes on from there.
[[nodiscard]] cuda::status close_segments(const cuda::driver_table& calls, opened_memory& memory) noexcept;

}  // namespace pinfold::cuda_ipc

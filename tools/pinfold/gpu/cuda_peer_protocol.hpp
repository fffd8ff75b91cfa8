// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between a peer with GPU memory and its parent, as in peer_protocol.hpp.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/importers/cuda_ipc.hpp>

#include <cstdint>

namespace tool {

struct gpu_request {
  enum class verb : std::uint32_t { allocate, free };
  verb what;
  pinfold::cuda_memory_kind kind;
  std::uint32_t buffer;
  std::uint64_t bytes;
  std::uint64_t seed;
};

/// A reply. The peer also sends one at its start. The error's text may cross: both processes run one image, and it is
/// static.
struct gpu_reply {
  bool ok;
  pinfold::error failure;
  pinfold::cuda_ipc_handle handle;
};

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a peer with GPU memory and its parent say to each other, as in peer_protocol.hpp.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/registrars/cuda_ipc.hpp>

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

/// The peer sends one at its start too. The error's text may cross: both processes run one image, and it is static.
struct gpu_reply {
  bool ok;
  pinfold::error failure;
  pinfold::cuda_ipc_handle handle;
};

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_peer.hpp"

#include "cli/failure.hpp"
#include "cli/many_files.hpp"
#include "peer/message.hpp"
#include "peer/peer_protocol.hpp"

#include <pinfold/cuda.hpp>

#include <fmt/format.h>

namespace tool {
namespace {

using handle = pinfold::cuda_ipc_handle;
using request = peer_request<pinfold::cuda_memory_kind>;

// This process asks the driver itself, since its explanation is longer than an error can be.
[[noreturn]] void explain(const pinfold::error& why) {
  if (!pinfold::cuda_devices()) throw failure("GPU memory is unavailable: " + pinfold::cuda_driver_text());
  throw failure("cannot start a peer with GPU memory: " + pinfold::describe(why));
}

}  // namespace

cuda_peer::cuda_peer(int device)
    : child_(need(peer_child::start([device](int socket) { serve_gpu_memory(socket, device); }),
                  "cannot start a peer with GPU memory")) {
  const auto ready = reply_of<handle>(child_);
  if (!ready) explain(ready.error());
  allow_many_files();  // each piece of shared memory can be one
}

pinfold::result<gpu_message> cuda_peer::provide(pinfold::cuda_memory_kind kind, std::size_t bytes) {
  const auto buffer = buffers_++;
  const auto seed = seed_for(id_.value, buffer, 0);
  return ask<handle>(child_, request{peer_verb::allocate, buffer, bytes, kind, seed}).map([&](const handle& made) {
    return gpu_message{id_, made, bytes, seed, buffer};
  });
}

pinfold::result<void> cuda_peer::free(const gpu_message& message) {
  return ask<handle>(child_, request{peer_verb::free, message.buffer}).map([](const auto&) {});
}

void cuda_peer::take_back(const std::vector<gpu_message>& messages) {
  for (const auto& one : messages) need(free(one), "a peer cannot free a buffer");
}

}  // namespace tool

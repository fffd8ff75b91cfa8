// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_peer.hpp"

#include "cli/failure.hpp"
#include "gpu/cuda_peer_protocol.hpp"
#include "peer/message.hpp"

#include <pinfold/cuda.hpp>

#include <fmt/format.h>
#include <sys/resource.h>

namespace tool {
namespace {

using pinfold::result;

result<gpu_reply> received(int socket) {
  gpu_reply reply{};
  if (!receive_packet(socket, reply)) return pinfold::fail(pinfold::errc::peer_gone, "the peer does not answer");
  if (!reply.ok) return tl::unexpected(reply.failure);
  return reply;
}

result<gpu_reply> exchange(int socket, const gpu_request& request) {
  if (!send_packet(socket, request)) return pinfold::fail(pinfold::errc::peer_gone, "cannot send to the peer");
  return received(socket);
}

// This process asks the driver itself, since its explanation is longer than an error can be.
[[noreturn]] void explain(const pinfold::error& why) {
  if (!pinfold::cuda_devices()) throw failure("GPU memory is unavailable: " + pinfold::cuda_driver_text());
  throw failure("cannot start a peer with GPU memory: " + pinfold::describe(why));
}

}  // namespace

cuda_peer::cuda_peer(int device)
    : child_(need(peer_child::start([device](int socket) { serve_gpu_memory(socket, device); }),
                  "cannot start a peer with GPU memory")) {
  const auto ready = received(child_.socket());
  if (!ready) explain(ready.error());
  allow_many_files();
}

result<gpu_message> cuda_peer::provide(pinfold::cuda_memory_kind kind, std::size_t bytes) {
  const auto buffer = buffers_++;
  const auto seed = seed_for(id_.value, buffer, 0);
  const auto reply = exchange(child_.socket(), {gpu_request::verb::allocate, kind, buffer, bytes, seed});
  if (!reply) return tl::unexpected(reply.error());
  return gpu_message{id_, reply->handle, bytes, seed, buffer};
}

result<void> cuda_peer::free(const gpu_message& message) {
  return exchange(child_.socket(), {gpu_request::verb::free, {}, message.buffer, 0, 0}).map([](const auto&) {});
}

void cuda_peer::take_back(const std::vector<gpu_message>& messages) {
  for (const auto& one : messages) need(free(one), "a peer cannot free a buffer");
}

void allow_many_files() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace tool

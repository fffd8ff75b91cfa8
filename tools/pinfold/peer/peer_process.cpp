// SPDX-License-Identifier: BSD-3-Clause
#include "peer/peer_process.hpp"

#include "cli/failure.hpp"
#include "peer/peer_protocol.hpp"

#include <utility>

namespace tool {

using handle = pinfold::memfd_handle;

pinfold::result<peer_process> peer_process::start(pinfold::peer_id id, const peer_options& options) {
  auto child = peer_child::start([&](int socket) { serve_as_peer(socket, options); });
  if (!child) return tl::unexpected(child.error());
  return reply_of<handle>(*child).map([&](const auto&) { return peer_process(id, *std::move(child)); });
}

pinfold::result<message> peer_process::provide(std::uint32_t buffer, std::size_t bytes, std::uint64_t where) {
  const auto seed = seed_for(id_.value, buffer, generation_++);
  const peer_request<std::uint64_t> request{peer_verb::allocate, buffer, bytes, where, seed};
  return ask<handle>(child_, request).map([&](const handle& made) { return message{id_, made, bytes, seed}; });
}

pinfold::result<void> peer_process::free(std::uint32_t buffer) {
  return ask<handle>(child_, peer_request<std::uint64_t>{peer_verb::free, buffer}).map([](const auto&) {});
}

std::vector<peer_process> start_peers(std::size_t count, const peer_options& options) {
  std::vector<peer_process> peers;
  for (std::size_t i = 0; i < count; ++i) {
    peers.push_back(need(peer_process::start({i}, options), "cannot start a peer"));
  }
  return peers;
}

}  // namespace tool

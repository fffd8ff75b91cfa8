// SPDX-License-Identifier: BSD-3-Clause
#include "peer/peer_process.hpp"

#include "cli/failure.hpp"
#include "peer/peer_child.hpp"
#include "peer/peer_protocol.hpp"

#include <utility>

namespace tool {

struct peer_process::state {
  pinfold::peer_id id;
  peer_child process;
  std::uint64_t generation = 0;  // of the messages, so that no two have the same content
};

namespace {

pinfold::result<peer_reply> exchange(int socket, const peer_request& request) {
  peer_reply reply{};
  if (!send_packet(socket, request) || !receive_packet(socket, reply)) {
    return pinfold::fail(pinfold::errc::peer_gone, "the peer does not answer");
  }
  if (!reply.ok) return tl::unexpected(reply.failure);
  return reply;
}

pinfold::result<void> wait_until_ready(int socket) {
  peer_reply reply{};
  if (!receive_packet(socket, reply)) return pinfold::fail(pinfold::errc::peer_gone, "the peer ended during its start");
  if (!reply.ok) return tl::unexpected(reply.failure);
  return {};
}

}  // namespace

peer_process::peer_process(std::unique_ptr<state> started) noexcept : state_(std::move(started)) {}
peer_process::peer_process(peer_process&&) noexcept = default;
peer_process& peer_process::operator=(peer_process&&) noexcept = default;
peer_process::~peer_process() = default;

pinfold::result<peer_process> peer_process::start(pinfold::peer_id id, const peer_options& options) {
  auto child = peer_child::start([&](int socket) { serve_as_peer(socket, options); });
  if (!child) return tl::unexpected(child.error());
  const auto ready = wait_until_ready(child->socket());
  if (!ready) return tl::unexpected(ready.error());
  return peer_process(std::make_unique<state>(state{id, *std::move(child), 0}));
}

pinfold::result<message> peer_process::provide(std::uint32_t buffer, std::size_t bytes, std::uint64_t where) {
  const auto seed = seed_for(state_->id.value, buffer, state_->generation++);
  const auto reply = exchange(state_->process.socket(), {peer_verb::allocate, buffer, bytes, where, seed});
  if (!reply) return tl::unexpected(reply.error());
  return message{state_->id, reply->handle, bytes, seed};
}

pinfold::result<void> peer_process::free(std::uint32_t buffer) {
  const auto reply = exchange(state_->process.socket(), {peer_verb::free, buffer, 0, 0, 0});
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

void peer_process::kill() noexcept { state_->process.kill(); }

pinfold::peer_id peer_process::id() const noexcept { return state_->id; }
pid_t peer_process::pid() const noexcept { return state_->process.pid(); }

std::vector<peer_process> start_peers(std::size_t count, const peer_options& options) {
  std::vector<peer_process> peers;
  for (std::size_t i = 0; i < count; ++i) {
    peers.push_back(need(peer_process::start({i}, options), "cannot start a peer"));
  }
  return peers;
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between a peer and its parent: one request, one reply, each a packet on a Unix socket.
#pragma once

#include "peer/peer_child.hpp"

#include <pinfold/error.hpp>

#include <cstdint>
#include <exception>

namespace tool {

enum class peer_verb : std::uint32_t { allocate, free };

/// `Place` says where the peer allocates.
template <class Place>
struct peer_request {
  peer_verb verb;
  std::uint32_t buffer;  ///< the parent's number for it
  std::uint64_t bytes = 0;
  Place where{};
  std::uint64_t seed = 0;  ///< of the content
};

/// A reply. The peer also sends one at its start. The error's text may cross: both processes run one image, and it is
/// static.
template <class Handle>
struct peer_reply {
  bool ok;
  pinfold::error failure;
  Handle handle;
};

/// Waits for the peer's next reply.
template <class Handle>
[[nodiscard]] pinfold::result<Handle> reply_of(const peer_child& peer) {
  peer_reply<Handle> reply{};
  if (!receive_packet(peer.socket(), reply)) return pinfold::fail(pinfold::errc::peer_gone, "the peer does not answer");
  if (!reply.ok) return tl::unexpected(reply.failure);
  return reply.handle;
}

template <class Handle, class Place>
[[nodiscard]] pinfold::result<Handle> ask(const peer_child& peer, const peer_request<Place>& request) {
  if (!send_packet(peer.socket(), request)) return pinfold::fail(pinfold::errc::peer_gone, "cannot send to the peer");
  return reply_of<Handle>(peer);
}

/// The peer's side: makes an owner of memory, and serves requests until the parent hangs up.
template <class Handle, class Place, class MakeOwner>
void serve_requests(int socket, MakeOwner make_owner) noexcept {
  const auto answer = [socket](const pinfold::result<Handle>& outcome) {
    return send_packet(
        socket, outcome ? peer_reply<Handle>{true, {}, *outcome} : peer_reply<Handle>{false, outcome.error(), {}});
  };
  try {
    auto owner = make_owner();
    peer_request<Place> request{};
    bool open = answer(owner.map([](const auto&) { return Handle{}; })) && owner;
    while (open && receive_packet(socket, request))
      open = answer(request.verb == peer_verb::allocate ? owner->allocate(request) : owner->release(request.buffer));
  } catch (const std::exception&) {
    answer(pinfold::fail(pinfold::errc::out_of_resources, "no memory"));
  }
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a peer and its parent say to each other: one request, one reply, each a packet on a Unix socket.
#pragma once

#include "peer_process.hpp"

#include <pinfold/error.hpp>
#include <pinfold/registrars/memfd.hpp>

#include <cerrno>
#include <cstdint>
#include <sys/socket.h>

namespace tool {

enum class peer_verb : std::uint32_t { allocate, free };

struct peer_request {
  peer_verb verb;
  std::uint32_t buffer;  ///< the parent's number for it
  std::uint64_t bytes;
  std::uint64_t where;  ///< 0 = anywhere
  std::uint64_t seed;   ///< of the content
};

/// The peer sends one at its start too. The error's text may cross: both processes run one image, and it is static.
struct peer_reply {
  bool ok;
  pinfold::error failure;
  pinfold::memfd_handle handle;
};

template <class T>
bool send_packet(int socket, const T& packet) noexcept {
  ssize_t sent = 0;
  do {
    sent = ::send(socket, &packet, sizeof packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof packet);
}

/// False when the other side is gone.
template <class T>
bool receive_packet(int socket, T& packet) noexcept {
  ssize_t received = 0;
  do {
    received = ::recv(socket, &packet, sizeof packet, 0);
  } while (received < 0 && errno == EINTR);
  return received == static_cast<ssize_t>(sizeof packet);
}

/// The peer's side: serves requests until the parent hangs up.
void serve_as_peer(int socket, const peer_options& options) noexcept;

}  // namespace tool

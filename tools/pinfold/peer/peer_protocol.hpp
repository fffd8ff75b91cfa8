// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between a peer and its parent: one request, one reply, each a packet on a Unix socket.
#pragma once

#include "peer/peer_child.hpp"
#include "peer/peer_process.hpp"

#include <pinfold/error.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstdint>

namespace tool {

enum class peer_verb : std::uint32_t { allocate, free };

struct peer_request {
  peer_verb verb;
  std::uint32_t buffer;  ///< the parent's number for it
  std::uint64_t bytes;
  std::uint64_t where;  ///< 0 = anywhere
  std::uint64_t seed;   ///< of the content
};

/// A reply. The peer also sends one at its start. The error's text may cross: both processes run one image, and it is
/// static.
struct peer_reply {
  bool ok;
  pinfold::error failure;
  pinfold::memfd_handle handle;
};

/// Runs the peer's side: serves requests until the parent hangs up.
void serve_as_peer(int socket, const peer_options& options) noexcept;

}  // namespace tool

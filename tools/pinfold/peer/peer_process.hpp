// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A peer: a real process of its own that owns memory and exports it.
#pragma once

#include "peer/message.hpp"
#include "peer/peer_child.hpp"

#include <pinfold/error.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace tool {

struct peer_options {
  bool serve = false;              ///< hand out descriptors over a socket too, for `memfd_via::scm`
  std::optional<std::size_t> cpu;  ///< run on this CPU only
};

/// The parent's side of one peer. The peer ends with this object, with its parent, or by `kill`. Not thread-safe.
class peer_process {
 public:
  /// Forks. Call it before this process has a second thread, since only the forking thread exists in the child.
  [[nodiscard]] static pinfold::result<peer_process> start(pinfold::peer_id id, const peer_options& options);

  /// Makes the peer allocate buffer number `buffer`, at `where` if that is not 0, and fill it with a new message.
  [[nodiscard]] pinfold::result<message> provide(std::uint32_t buffer, std::size_t bytes, std::uint64_t where = 0);

  /// Makes the peer free that buffer.
  [[nodiscard]] pinfold::result<void> free(std::uint32_t buffer);

  /// Ends the peer at once, as a crash does, and waits until it is gone.
  void kill() noexcept { child_.kill(); }

  [[nodiscard]] pinfold::peer_id id() const noexcept { return id_; }
  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }

 private:
  peer_process(pinfold::peer_id id, peer_child child) noexcept : id_(id), child_(std::move(child)) {}

  pinfold::peer_id id_;
  peer_child child_;
  std::uint64_t generation_ = 0;  // of the messages, so that no two have the same content
};

/// Runs the peer's side: serves requests until the parent hangs up.
void serve_as_peer(int socket, const peer_options& options) noexcept;

/// Starts `count` peers with the ids 0, 1, … Throws `failure`.
[[nodiscard]] std::vector<peer_process> start_peers(std::size_t count, const peer_options& options);

}  // namespace tool

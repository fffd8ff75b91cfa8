// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The thread that passes an exporter's descriptors to peers of the same user.
#pragma once

#include "fd_passing/fd_provider.hpp"
#include "fd_passing/wire.hpp"
#include "os/background_closer.hpp"
#include "os/file.hpp"
#include "os/thread.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <vector>

namespace pinfold::fd_passing {

using os::file;

/// Serves all connections in one non-blocking loop, so that no peer can delay another. Closes a connection whose peer
/// sends an invalid message or does not read its replies. If there are too many connections, closes the one that was
/// silent for longest. Importers connect again when necessary. Only the exporter's own user and root get descriptors;
/// for other users, the server keeps few connections, receives no descriptors, and waits for no close.
class server {
 public:
  static constexpr std::size_t most_clients = 256;

  /// Starts the thread. Listens at the exporter's name, unless it is given the socket. If that fails, gives the socket
  /// back: closed, it would leave the name to other users. Errors: `out_of_resources`, and the system's.
  [[nodiscard]] static result<std::unique_ptr<server>> start(std::uint64_t exporter, std::shared_ptr<fd_provider> from,
                                                             file& listener) noexcept;
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// Stops the thread at once. In a forked child, which has no such thread, only closes the descriptors.
  ~server();

 private:
  struct client {
    file socket;
    bool permitted;
    std::uint64_t last_round;  ///< the round of the loop in which the peer last sent a request
  };

  server(std::uint64_t exporter, bool closes_at_once, std::shared_ptr<fd_provider> from);

  // The thread calls all functions below.
  static void run(void* self) noexcept;
  void loop() noexcept;
  [[nodiscard]] bool wait() noexcept;
  [[nodiscard]] bool recover() noexcept;
  void serve_all() noexcept;
  [[nodiscard]] bool serve(client& peer) noexcept;
  [[nodiscard]] int answer(const client& peer, std::uint64_t serial) noexcept;
  void accept_some() noexcept;
  [[nodiscard]] bool accept_one() noexcept;
  [[nodiscard]] bool make_room(bool permitted) noexcept;
  void drop_most_silent() noexcept;
  void drop(std::vector<client>::iterator peer) noexcept;
  void hang_up(client& peer) noexcept;

  const std::uint64_t exporter_;
  file listener_;
  const std::shared_ptr<fd_provider> provider_;
  os::background_closer closer_;  ///< of the listener, and of connections to other users
  std::vector<client> clients_;
  std::vector<pollfd> watched_;  ///< wake, listener, then the connections in their order
  std::uint64_t round_ = 0;
  bool listening_ = true;  ///< false once the program has closed the listener
  bool resting_ = false;   ///< true while no connection is accepted because there are no descriptors
  os::thread thread_;
};

}  // namespace pinfold::fd_passing

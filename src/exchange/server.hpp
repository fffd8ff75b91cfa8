// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The thread that hands an exporter's descriptors to peers of the same user.
#pragma once

#include "exchange/file.hpp"
#include "exchange/source.hpp"
#include "exchange/wire.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <pthread.h>
#include <vector>

namespace pinfold::exchange {

/// One loop over non-blocking connections, so that no peer can hold up another: one that says something wrong, or does
/// not read its replies, is cut off, and when there are too many, whoever was silent for longest is. Importers connect
/// again when they need to. Descriptors go to the exporter's own user and to root.
class server {
 public:
  static constexpr std::size_t most_connections = 256;

  [[nodiscard]] static result<std::unique_ptr<server>> start(std::uint64_t exporter,
                                                             std::shared_ptr<source> from) noexcept;
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// Stops the thread, at once. In a forked child, where there is no thread, only closes.
  ~server();

 private:
  struct connection {
    file socket;
    bool permitted;
    std::uint64_t last_round;  ///< the round of the loop in which it last said something
  };

  server(std::uint64_t exporter, file listener, std::array<file, 2> wake, std::shared_ptr<source> from);
  [[nodiscard]] int launch() noexcept;

  // All below run on the thread.
  void loop() noexcept;
  [[nodiscard]] bool wait() noexcept;
  [[nodiscard]] bool recover() noexcept;
  void serve_all() noexcept;
  [[nodiscard]] bool serve(connection& peer) noexcept;
  [[nodiscard]] int answer(const connection& peer, std::uint64_t serial) noexcept;
  void accept_some() noexcept;
  [[nodiscard]] bool accept_one() noexcept;
  void drop_most_silent() noexcept;

  const std::uint64_t exporter_;
  const file listener_;
  const file wake_;   ///< the thread's end of a pair of sockets
  const file waker_;  ///< the other end: shut down by the destructor
  const std::shared_ptr<source> source_;
  std::vector<connection> connections_;
  std::vector<pollfd> watched_;  ///< wake, listener, then the connections in their order
  std::uint64_t round_ = 0;
  std::atomic<bool> stop_{false};
  bool listening_ = true;  ///< false once the program has closed the listener
  bool resting_ = false;   ///< no new connections for a while, as there are no descriptors for them
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace pinfold::exchange

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A process that answers requests: forked, at the other end of a socket.
#pragma once

#include <pinfold/error.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <sys/socket.h>
#include <sys/types.h>
#include <utility>

namespace tool {

/// The parent's side. The child ends with this object, with its parent, or by `kill`. Not thread-safe.
class peer_child {
 public:
  /// Forks; the child calls `serve` with its end of the socket, and ends when that returns. Call it before this process
  /// has a second thread, since only the forking thread exists in the child.
  [[nodiscard]] static pinfold::result<peer_child> start(const std::function<void(int socket)>& serve);

  [[nodiscard]] int socket() const noexcept;
  [[nodiscard]] pid_t pid() const noexcept;

  /// Ends the child at once, as a crash does, and waits until it is gone.
  void kill() noexcept;

 private:
  struct state;
  struct state_closer {
    void operator()(state* ending) const noexcept;
  };
  explicit peer_child(std::unique_ptr<state, state_closer> started) noexcept : state_(std::move(started)) {}
  std::unique_ptr<state, state_closer> state_;
};

template <class T>
bool send_packet(int socket, const T& packet) noexcept {
  ssize_t sent = 0;
  do {
    sent = ::send(socket, &packet, sizeof packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof packet);
}

/// Returns false when the other side is gone.
template <class T>
bool receive_packet(int socket, T& packet) noexcept {
  ssize_t received = 0;
  do {
    received = ::recv(socket, &packet, sizeof packet, 0);
  } while (received < 0 && errno == EINTR);
  return received == static_cast<ssize_t>(sizeof packet);
}

}  // namespace tool

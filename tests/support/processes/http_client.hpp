// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// HTTP as bytes, so that a test can also say what no client would.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {

/// A connection to a server.
class http_client {
 public:
  /// Connects to a loopback port, or to a socket at a path. Throws `std::runtime_error`.
  explicit http_client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<const sockaddr*>(&at), sizeof at);
  }
  explicit http_client(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::copy_n(path.begin(), std::min(path.size(), sizeof at.sun_path - 1), static_cast<char*>(at.sun_path));
    connect(reinterpret_cast<const sockaddr*>(&at), sizeof at);
  }
  http_client(http_client&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  http_client& operator=(http_client&&) = delete;
  ~http_client() {
    if (socket_ >= 0) ::close(socket_);
  }

  void send(const std::string& text) const {
    static_cast<void>(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL));
  }

  /// Returns all that comes until the server closes, or says nothing for a minute.
  [[nodiscard]] std::string rest() const {
    std::string text;
    std::array<char, 65536> buffer{};
    for (ssize_t got = 0; (got = ::recv(socket_, buffer.data(), buffer.size(), 0)) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(got));
    return text;
  }

  /// Asks for a path, and returns the answer with its head.
  [[nodiscard]] std::string get(const std::string& path, const std::string& headers = "") const {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n");
    return rest();
  }

 private:
  void connect(const sockaddr* to, socklen_t bytes) const {
    const timeval patience{60, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(socket_, to, bytes) != 0) throw std::runtime_error("cannot connect");
  }

  int socket_;
};

}  // namespace pinfold::testing

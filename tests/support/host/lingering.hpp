// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Descriptors whose close takes long.
#pragma once

#include <array>
#include <chrono>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pinfold::testing {

/// How long the last close of `lingering_socket` takes, if its process lives so long.
inline constexpr std::chrono::seconds lingers_for{120};

/// Returns a TCP socket whose last close waits, as its peer does not read what was sent. The peer stays open until the
/// process ends. -1 where that is not possible.
inline int lingering_socket() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  auto* const name = reinterpret_cast<sockaddr*>(&at);
  const int room = 4096;
  ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::setsockopt(made, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  if (::bind(listener, name, bytes) != 0 || ::listen(listener, 1) != 0) return -1;
  if (::getsockname(listener, name, &bytes) != 0 || ::connect(made, name, bytes) != 0) return -1;
  if (::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) < 0) return -1;
  ::close(listener);
  constexpr std::array<char, 4096> unread{};
  for (int i = 0; i < 3; ++i, ::usleep(20'000))
    while (::send(made, unread.data(), unread.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  const linger waits{.l_onoff = 1, .l_linger = static_cast<int>(lingers_for.count())};
  return ::setsockopt(made, SOL_SOCKET, SO_LINGER, &waits, sizeof waits) == 0 ? made : -1;
}

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/connections.hpp"

#include <new>
#include <sys/socket.h>

namespace tool {

void connections::begun(int socket) noexcept {
  const std::scoped_lock held(mutex_);
  try {
    begun_[socket] = std::chrono::steady_clock::now();
  } catch (const std::bad_alloc&) {
    ::shutdown(socket, SHUT_RDWR);  // a connection that nothing would cut
  }
}

void connections::ended(int socket) noexcept {
  const std::scoped_lock held(mutex_);
  begun_.erase(socket);
}

void connections::cut_older_than(std::chrono::nanoseconds age) noexcept {
  const std::scoped_lock held(mutex_);  // the server cannot close these sockets meanwhile
  const auto limit = std::chrono::steady_clock::now() - age;
  for (const auto& [socket, begin] : begun_)
    if (begin < limit) ::shutdown(socket, SHUT_RDWR);
}

}  // namespace tool

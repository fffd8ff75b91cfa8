// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long clients have been connected. A client that sends a byte now and then is never silent, and one that does not
/// read its answer keeps its connection: both are cut by their age.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <sys/socket.h>

namespace tool {

/// Connections that are not cut yet. To cut one is to shut it down: the server then closes it.
class connections {
 public:
  /// More than `most` are never kept: the oldest one is cut.
  explicit connections(std::size_t most) noexcept : most_(most) {}

  /// Notes a connection's begin. For the server's thread.
  void begun(int socket) noexcept {
    const std::scoped_lock held(mutex_);
    try {
      begun_[socket] = std::chrono::steady_clock::now();
    } catch (const std::bad_alloc&) {
      ::shutdown(socket, SHUT_RDWR);  // a connection that nothing would cut
    }
    if (begun_.size() > most_) cut(std::ranges::min_element(begun_, {}, &noted::second));
  }

  /// Notes its end, before its socket is closed. For the server's thread.
  void ended(int socket) noexcept {
    const std::scoped_lock held(mutex_);
    begun_.erase(socket);
  }

  /// Cuts connections that are older. For any thread.
  void cut_older_than(std::chrono::nanoseconds age) noexcept {
    const std::scoped_lock held(mutex_);  // the server cannot close these sockets meanwhile
    const auto limit = std::chrono::steady_clock::now() - age;
    for (auto at = begun_.begin(); at != begun_.end();) at->second < limit ? at = cut(at) : ++at;
  }

 private:
  using all = std::map<int, std::chrono::steady_clock::time_point>;
  using noted = all::value_type;

  all::iterator cut(all::iterator which) noexcept {
    ::shutdown(which->first, SHUT_RDWR);
    return begun_.erase(which);
  }

  std::size_t most_;
  std::mutex mutex_;
  all begun_;
};

}  // namespace tool

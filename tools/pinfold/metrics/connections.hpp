// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long clients have been connected. A client that sends a byte now and then is never silent, and is cut by its
/// age.
#pragma once

#include <chrono>
#include <map>
#include <mutex>

namespace tool {

class connections {
 public:
  /// Note a connection's begin, and its end, before its socket is closed. For the server's thread. Without memory for
  /// the note, the connection has no limit of age.
  void begun(int socket) noexcept;
  void ended(int socket) noexcept;

  /// Shuts connections down that are older; the server then closes them. For any thread.
  void cut_older_than(std::chrono::nanoseconds age) noexcept;

 private:
  std::mutex mutex_;
  std::map<int, std::chrono::steady_clock::time_point> begun_;
};

}  // namespace tool

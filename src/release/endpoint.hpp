// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One connection between an exporter and an importer, seen from either end.
#pragma once

#include "os/file.hpp"

#include <pinfold/release/message.hpp>

#include <optional>
#include <sys/types.h>

namespace pinfold::release {

/// Returns the number to poll, or -1 if the program has closed it: poll(2) would return at once for ever.
[[nodiscard]] inline int watchable(const os::file& watched) noexcept {
  return watched.still_there() ? watched.number() : -1;
}

/// A socket, and the process at its other end. A forked child keeps the sockets of its dead parent open, so the end of
/// the connection is not the end of the process. Not thread-safe.
struct endpoint {
  os::file socket;
  os::file process;  ///< a pidfd; empty if the process cannot be seen
  pid_t pid = 0;
  int no_process = 0;      ///< why `process` is empty although there is a pid: an `errno` value. ESRCH: it has ended;
                           ///< ENOTCONN: it may have ended, and another may have its pid
  bool permitted = false;  ///< the other end belongs to this user or to root

  /// Takes over a connected socket.
  [[nodiscard]] static endpoint of(os::file connected) noexcept;

  enum class sent : unsigned char { done, full, broken };
  /// Sends without waiting.
  [[nodiscard]] sent send(const release_message& message) const noexcept;

  enum class received : unsigned char { message, none, broken };
  /// Receives without waiting. A malformed message breaks the connection.
  [[nodiscard]] received receive(release_message& into) const noexcept;

  [[nodiscard]] bool process_ended() const noexcept;

  /// Ends the connection even if a forked child has the socket open. Must not be called in such a child.
  void hang_up() const noexcept;
};

}  // namespace pinfold::release

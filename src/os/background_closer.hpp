// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Closes sockets of untrusted processes.
#pragma once

#include "os/file.hpp"

#include <cstddef>

namespace pinfold::os {

/// Closes sockets on a thread that no other thread waits for. The process at the other end decides how long a close
/// takes: it may have sent a descriptor of a TCP socket with SO_LINGER, and closing this socket then drops the last
/// reference to that one. Where the kernel refuses such messages (`refuse_descriptors`), the caller closes the sockets
/// itself.
///
/// All closers of a process share the thread, which runs while sockets wait. Thread-safe, without a lock that a thread
/// of the parent could hold in a forked child, which has a thread of its own. The library stays loaded
/// (`stay_loaded`): a close may outlast all objects of the library, and returns into its code.
class background_closer {
 public:
  /// The limit of sockets that wait for their close. At the limit, a server accepts no connection, and an importer
  /// makes none.
  static constexpr std::size_t most = 64;

  /// `at_once`: no close has to wait.
  explicit background_closer(bool at_once) noexcept;

  /// Also starts the thread if `close` could not.
  [[nodiscard]] bool has_room() const noexcept;
  /// Returns at once, also without room, unless there is no memory.
  void close(file socket) const noexcept;

 private:
  bool at_once_;
};

}  // namespace pinfold::os

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Closing sockets of processes that are not trusted.
#pragma once

#include "os/file.hpp"

#include <cstddef>
#include <memory>

namespace pinfold::os {

/// Closes sockets on a thread that no other thread waits for. The process at the other end decides how long a close
/// takes: it may have sent a descriptor of a TCP socket with SO_LINGER, and the close of this socket drops the last
/// reference to that one. Where the kernel refuses such messages (`refuse_descriptors`), the caller closes the sockets
/// itself.
///
/// One thread at a time may use it. A forked child may only destroy its copy.
class background_closer {
 public:
  /// Sockets that wait for their close. A server that has more accepts no connection meanwhile.
  static constexpr std::size_t most = 64;

  /// Throws `std::bad_alloc`. `at_once`: no close has to wait.
  explicit background_closer(bool at_once);

  [[nodiscard]] bool has_room() const noexcept;
  /// Returns at once while there is room, and for `most` more sockets, so that a server that ends need not look.
  void close(file socket) noexcept;

 private:
  struct state;
  std::shared_ptr<state> state_;  ///< empty if `at_once`
};

}  // namespace pinfold::os

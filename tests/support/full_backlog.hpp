// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A stopped exporter to which other processes have connected until no more connections could wait at its socket.
#pragma once

#include "fd_passing/client.hpp"

#include <chrono>

namespace pinfold::testing {

/// The exporter must be stopped. Returns whether a connection waited in vain in the end.
[[nodiscard]] inline bool fill_backlog(const fd_passing::exporter_id& of, fd_passing::socket_purpose purpose) {
  constexpr int most = 100'000;
  for (int i = 0; i < most; ++i) {  // a closed connection waits, too
    const auto made = fd_passing::connect_to(of, purpose, std::chrono::milliseconds{50});
    if (!made) return made.error() == errc::timed_out;
  }
  return false;
}

}  // namespace pinfold::testing

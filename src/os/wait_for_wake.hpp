// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How a thread of the library waits for nothing but its wake.
#pragma once

#include "os/file.hpp"
#include "os/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>

namespace pinfold::os {

/// Waits until the thread is woken, for that time at most. For the thread itself.
///
/// Without a check, a poll would return at once for ever: for a number that the program has closed, and, as it fails,
/// for any number with RLIMIT_NOFILE 0.
inline void wait_for_wake(const thread& self, std::chrono::milliseconds timeout) noexcept {
  constexpr std::chrono::milliseconds rest{50};
  const file& end = self.wake_end();
  pollfd wake{.fd = end.still_there() ? end.number() : -1, .events = POLLIN, .revents = 0};
  if (::poll(&wake, 1, static_cast<int>(timeout.count())) < 0 && errno != EINTR)
    ::poll(nullptr, 0, static_cast<int>(std::min(timeout, rest).count()));
}

}  // namespace pinfold::os

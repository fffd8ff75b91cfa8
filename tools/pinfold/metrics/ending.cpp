// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/ending.hpp"

#include "cli/ignored_signal.hpp"

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace tool {
ending_signals::ending_signals() noexcept {
  ::sigemptyset(&all_);
  for (const int one : {SIGINT, SIGTERM, SIGHUP})
    if (one != SIGHUP || !is_ignored(one)) ::sigaddset(&all_, one);
  ::pthread_sigmask(SIG_BLOCK, &all_, nullptr);
}

bool ending_signals::arrived_within(std::chrono::nanoseconds limit) const noexcept {
  using clock = std::chrono::steady_clock;
  const auto deadline = clock::now() + limit;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - clock::now()).count();
    const timespec wait{left > 0 ? left / 1'000'000'000 : 0, left > 0 ? left % 1'000'000'000 : 0};
    if (::sigtimedwait(&all_, nullptr, &wait) > 0) return true;
  } while (errno == EINTR && clock::now() < deadline);
  return false;
}

}  // namespace tool

// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/text_lock.hpp"

#include <chrono>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>

namespace pinfold::monitors {

// Of the files there that only this process can open, the one that it can open after setuid(2), too. On some kernels it
// cannot be opened once the main thread has ended.
text_lock::text_lock() noexcept : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {
  if (!file_) file_ = os::file(::open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds longest{1};
  const auto until = steady_clock::now() + longest;
  while (file_ && ::flock(file_.number(), LOCK_EX | LOCK_NB) != 0 && steady_clock::now() < until) ::sched_yield();
}

// Unlocks explicitly: a child forked meanwhile has the same open file, so closing it does not release the lock.
text_lock::~text_lock() {
  if (file_.still_there()) ::flock(file_.number(), LOCK_UN);
}

}  // namespace pinfold::monitors

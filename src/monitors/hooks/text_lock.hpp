// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Mutual exclusion between copies of this library in one process, which share no variable.
#pragma once

#include "os/file.hpp"

namespace pinfold::monitors {

/// Held while libc's code is changed, because each copy makes pages writable and read-only again. A lock on a file of
/// this process's in /proc that other users cannot open. The constructor waits for other copies for at most a second,
/// and continues without the lock if there is no /proc. Not for hooks: makes system calls.
class text_lock {
 public:
  text_lock() noexcept;
  text_lock(const text_lock&) = delete;
  text_lock& operator=(const text_lock&) = delete;
  ~text_lock();

 private:
  os::file file_;
};

}  // namespace pinfold::monitors

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Mutual exclusion between copies of this library in one process, which share no variable.
#pragma once

namespace pinfold::monitors {

/// Held while libc's code is changed: each copy makes pages writable and takes that away again. A lock on a file that
/// only this process has: its own entry in /proc. Waits for other copies for a second at most, and goes on without
/// where there is no /proc. Not for hooks: makes system calls.
class text_lock {
 public:
  text_lock() noexcept;
  text_lock(const text_lock&) = delete;
  text_lock& operator=(const text_lock&) = delete;
  ~text_lock();

 private:
  int file_;
};

}  // namespace pinfold::monitors

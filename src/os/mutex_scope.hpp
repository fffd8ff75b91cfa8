// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Holds a mutex for a scope, or releases it for one. `os/mutex.hpp` includes this, also that of the explored build.
#pragma once

#include "os/mutex.hpp"

namespace pinfold::os {

/// Releases a mutex for a scope, in which the thread may wait or call foreign code. Values read before are then stale.
class PINFOLD_THREAD_ATTRIBUTE(scoped_lockable) scoped_unlock {
 public:
  explicit scoped_unlock(mutex& held) noexcept PINFOLD_THREAD_ATTRIBUTE(release_capability(held)) : mutex_(held) {
    mutex_.unlock();
  }
  ~scoped_unlock() PINFOLD_THREAD_ATTRIBUTE(release_capability()) { mutex_.lock(); }
  scoped_unlock(const scoped_unlock&) = delete;
  scoped_unlock& operator=(const scoped_unlock&) = delete;

 private:
  mutex& mutex_;
};

/// Makes the call with the mutex released, and returns its result.
template <class F>
auto unlocked(mutex& held, F&& call) noexcept PINFOLD_REQUIRES(held) {
  const scoped_unlock free(held);
  return call();
}

class PINFOLD_THREAD_ATTRIBUTE(scoped_lockable) scoped_lock {
 public:
  explicit scoped_lock(mutex& held) noexcept PINFOLD_THREAD_ATTRIBUTE(acquire_capability(held)) : mutex_(held) {
    mutex_.lock();
  }
  ~scoped_lock() PINFOLD_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  scoped_lock(const scoped_lock&) = delete;
  scoped_lock& operator=(const scoped_lock&) = delete;

 private:
  mutex& mutex_;
};

}  // namespace pinfold::os

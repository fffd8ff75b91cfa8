// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A mutex that clang's thread-safety analysis understands, and the attributes to say who guards what.
#pragma once

#include <mutex>
#include <pthread.h>

#if defined(__clang__)
#define PINFOLD_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define PINFOLD_THREAD_ATTRIBUTE(x)
#endif

#define PINFOLD_GUARDED_BY(m) PINFOLD_THREAD_ATTRIBUTE(guarded_by(m))
#define PINFOLD_REQUIRES(m) PINFOLD_THREAD_ATTRIBUTE(requires_capability(m))
#define PINFOLD_EXCLUDES(m) PINFOLD_THREAD_ATTRIBUTE(locks_excluded(m))
#define PINFOLD_SAYS_HELD(m) PINFOLD_THREAD_ATTRIBUTE(assert_capability(m))

namespace pinfold::core {

class PINFOLD_THREAD_ATTRIBUTE(capability("mutex")) mutex {
 public:
  /// The critical sections are a fraction of what it costs to sleep and be woken, so that waiting spins for a while
  /// first, where the C library can.
  mutex() noexcept {
#if defined(__GLIBC__)
    pthread_mutexattr_t kind;
    ::pthread_mutexattr_init(&kind);
    ::pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    ::pthread_mutex_init(inner_.native_handle(), &kind);
    ::pthread_mutexattr_destroy(&kind);
#endif
  }
  void lock() noexcept PINFOLD_THREAD_ATTRIBUTE(acquire_capability()) { inner_.lock(); }
  void says_held() const noexcept PINFOLD_SAYS_HELD(this) {}  ///< where the analysis cannot know
  void unlock() noexcept PINFOLD_THREAD_ATTRIBUTE(release_capability()) { inner_.unlock(); }

 private:
  std::mutex inner_;
};

/// Holds a mutex for a scope.
class PINFOLD_THREAD_ATTRIBUTE(scoped_lockable) scoped_lock {
 public:
  explicit scoped_lock(mutex& held) noexcept PINFOLD_THREAD_ATTRIBUTE(acquire_capability(held)) : held_(held) {
    held_.lock();
  }
  ~scoped_lock() PINFOLD_THREAD_ATTRIBUTE(release_capability()) { held_.unlock(); }
  scoped_lock(const scoped_lock&) = delete;
  scoped_lock& operator=(const scoped_lock&) = delete;

 private:
  mutex& held_;
};

}  // namespace pinfold::core

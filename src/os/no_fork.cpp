// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_fork.hpp"

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <sched.h>
#include <utility>

namespace pinfold::os {

namespace {

/// Admits threads that make a descriptor, or threads that fork, but never both at once. A wait ends after a second, so
/// that a signal handler that forks while its own thread makes a descriptor does not hang.
class exclusion {
 public:
  /// `side` is 1 or -1. Returns false when the other side did not leave in time.
  [[nodiscard]] bool enter(int side) noexcept {
    using std::chrono::steady_clock;
    constexpr std::chrono::seconds longest{1};
    const auto until = steady_clock::now() + longest;
    int inside = inside_.load(std::memory_order_relaxed);
    for (;;) {
      if (inside * side < 0) {
        if (steady_clock::now() >= until) return false;
        ::sched_yield();
        inside = inside_.load(std::memory_order_relaxed);
      } else if (inside_.compare_exchange_weak(inside, inside + side, std::memory_order_acq_rel)) {
        return true;
      }
    }
  }
  void leave(int side) noexcept { inside_.fetch_sub(side, std::memory_order_acq_rel); }
  void forget() noexcept { inside_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int> inside_{0};
};

constexpr int making = 1;
constexpr int forking = -1;
constinit exclusion threads;
thread_local bool fork_has_waited = false;
thread_local bool fork_is_inside = false;

void before_fork() noexcept {
  if (!std::exchange(fork_has_waited, true)) fork_is_inside = threads.enter(forking);
}

void in_parent() noexcept {
  if (fork_is_inside) threads.leave(forking);
  fork_has_waited = fork_is_inside = false;
}

void in_child() noexcept {
  threads.forget();
  fork_has_waited = fork_is_inside = false;
}

// Installing them twice is harmless.
bool have_handlers() noexcept {
  static std::atomic<bool> there{false};
  if (there.load(std::memory_order_acquire)) return true;
  if (::pthread_atfork(before_fork, in_parent, in_child) != 0) return false;
  there.store(true, std::memory_order_release);
  return true;
}

// When the library is loaded: a fork that began before it had handlers would not wait.
[[maybe_unused]] const bool from_the_start = have_handlers();

}  // namespace

no_fork::no_fork() noexcept : held_(have_handlers() && threads.enter(making)) {}

no_fork::~no_fork() {
  if (held_) threads.leave(making);
}

void wait_for_no_fork() noexcept {
  if (have_handlers()) before_fork();
}

}  // namespace pinfold::os

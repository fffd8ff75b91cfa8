// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_fork.hpp"

#include "os/this_process.hpp"

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <utility>

namespace pinfold::os {

namespace {

/// Admits threads that make a descriptor, or threads that fork, but never both at once. A wait ends after a second. A
/// fork in a signal handler does not wait for its own thread.
class exclusion {
 public:
  /// `side` is 1 or -1. Returns false if the other side did not leave in time.
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
constinit std::atomic<unsigned> forks{0};  // from the first process to this one
thread_local unsigned held_here = 0;       // by `no_fork`s of this thread
thread_local bool fork_has_waited = false;
thread_local bool fork_is_inside = false;

void before_fork() noexcept {
  if (!std::exchange(fork_has_waited, true)) fork_is_inside = held_here == 0 && threads.enter(forking);
}

void in_parent() noexcept {
  if (fork_is_inside) threads.leave(forking);
  fork_has_waited = fork_is_inside = false;
}

void in_child() noexcept {
  threads.forget();
  forks.fetch_add(1, std::memory_order_relaxed);
  fork_has_waited = fork_is_inside = false;
}

// Installing the handlers twice is harmless.
bool have_handlers() noexcept {
  static std::atomic<bool> there{false};
  if (there.load(std::memory_order_acquire)) return true;
  if (::pthread_atfork(before_fork, in_parent, in_child) != 0) return false;
  there.store(true, std::memory_order_release);
  return true;
}

// Installs the handlers when the library is loaded: a fork that began before would not wait.
[[maybe_unused]] const bool from_the_start = have_handlers();

}  // namespace

no_fork::no_fork() noexcept
    : held_(have_handlers() && threads.enter(making)), forks_(forks.load(std::memory_order_relaxed)) {
  if (held_) ++held_here;
}

// In the child of a signal handler's fork, nothing is held.
no_fork::~no_fork() {
  if (held_) --held_here;
  if (held_ && forks_ == forks.load(std::memory_order_relaxed)) threads.leave(making);
}

// Without the handlers, as after clone(2), the PID alone differs.
std::uint64_t this_process() noexcept {
  return std::uint64_t{forks.load(std::memory_order_relaxed)} << 32U | static_cast<std::uint32_t>(::getpid());
}

void wait_for_no_fork() noexcept {
  if (have_handlers()) before_fork();
}

}  // namespace pinfold::os

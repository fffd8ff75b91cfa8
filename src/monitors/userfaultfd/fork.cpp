// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/fork.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <pthread.h>
#include <sched.h>

namespace pinfold::monitors::uffd {

namespace {

enum class keeping : std::uint8_t { nothing, changing, these };

std::atomic<keeping> state{keeping::nothing};
std::array<descriptor, 2> kept;  // only the thread that set the state to `changing` writes them

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
thread_local bool fork_is_inside = false;

void before_fork() noexcept { fork_is_inside = threads.enter(forking); }

void in_parent() noexcept {
  if (fork_is_inside) threads.leave(forking);
  fork_is_inside = false;
}

void in_child() noexcept {
  if (state.load(std::memory_order_acquire) == keeping::these)
    for (auto& one : kept) one.close();
  state.store(keeping::nothing, std::memory_order_release);
  threads.forget();
  fork_is_inside = false;
}

// Installs the handlers before the first descriptor is made. Installing them twice is harmless.
int have_handlers() noexcept {
  static std::atomic<bool> there{false};
  if (there.load(std::memory_order_acquire)) return 0;
  const int native = ::pthread_atfork(before_fork, in_parent, in_child);
  if (native == 0) there.store(true, std::memory_order_release);
  return native;
}

}  // namespace

// Without handlers `keep_from_children` returns the error, and nothing is kept.
no_fork::no_fork() noexcept : held_(have_handlers() == 0 && threads.enter(making)) {}

no_fork::~no_fork() {
  if (held_) threads.leave(making);
}

result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept {
  auto none = keeping::nothing;
  if (!state.compare_exchange_strong(none, keeping::changing, std::memory_order_acquire))
    return fail(errc::unsupported, "this process has a userfaultfd monitor already");
  if (const int native = have_handlers(); native != 0) {
    state.store(keeping::nothing, std::memory_order_release);
    return fail_errno(errc::out_of_resources, native, "no memory to track forks");
  }
  kept = {uffd, maps};
  state.store(keeping::these, std::memory_order_release);
  return {};
}

void forget_for_children() noexcept { state.store(keeping::nothing, std::memory_order_release); }

}  // namespace pinfold::monitors::uffd

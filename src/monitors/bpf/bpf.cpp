// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/bpf.hpp"

#include "os/all_signals_blocked.hpp"
#include "os/no_fork.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <pthread.h>

namespace pinfold::monitors {

namespace {

/// The monitors of this process, for the fork handlers. The mutex guards the list and is held during a fork.
class family {
 public:
  static family& here() noexcept { return all; }

  bool watch_forks() noexcept {
    const os::all_signals_blocked no_handler_forks;
    const std::scoped_lock guard(mutex_);
    if (!watching_forks_) watching_forks_ = ::pthread_atfork(lock, unlock, leave) == 0;
    return watching_forks_;
  }

  [[nodiscard]] bool add(bpf_monitor* one) noexcept {
    if (!watch_forks()) return false;
    const os::all_signals_blocked no_handler_forks;
    const std::scoped_lock guard(mutex_);
    const auto room = std::find(all_.begin(), all_.end(), nullptr);
    if (room == all_.end()) return false;
    *room = one;
    return true;
  }

  void remove(const bpf_monitor* one) noexcept {
    const os::all_signals_blocked no_handler_forks;
    const std::scoped_lock guard(mutex_);
    std::replace(all_.begin(), all_.end(), const_cast<bpf_monitor*>(one), static_cast<bpf_monitor*>(nullptr));
  }

 private:
  static void lock() {
    os::wait_for_no_fork();
    here().mutex_.lock();
  }
  static void unlock() { here().mutex_.unlock(); }
  static void leave() {
    for (auto*& one : here().all_)
      if (one != nullptr) std::exchange(one, nullptr)->leave_to_parent();
    unlock();
  }

  std::mutex mutex_;
  std::array<bpf_monitor*, 16> all_{};
  bool watching_forks_ = false;
  static family all;
};

constinit family family::all;

// Registered when the library is loaded: fork(2) runs only the handlers that were registered when it began.
[[maybe_unused]] const bool from_the_start = family::here().watch_forks();

result<bpf_subscription> subscribe(const bpf_source& source) {
  result<bpf_subscription> served =
      fail(errc::invalid_argument, "neither a server's socket nor loading the kernel programs is allowed");
  if (!source.socket.empty()) served = bpf_subscribe_at(source.socket);
  if (served || !source.load) return served;
  auto loaded = bpf_subscribe_here();
  const bool no_server = source.socket.empty() || (!source.named && served.error().native == ENOENT);
  return loaded || no_server ? std::move(loaded) : std::move(served);
}

}  // namespace

bpf_monitor::bpf_monitor(invalidation::event_log& event_log, invalidation::registered_filter& watched, bpf_ring ring)
    : event_log_(event_log), watched_(watched), process_(event_log.process()), ring_(std::move(ring)) {}

bpf_monitor::~bpf_monitor() { family::here().remove(this); }

result<void> bpf_monitor::start(bpf_links links, os::file connection) noexcept {
  auto held = holder_.start(std::move(links), std::move(connection));
  if (held && !family::here().add(this)) return fail(errc::out_of_resources, "too many monitors in one process");
  return held;
}

// The kernel programs see the whole address space.
result<void> bpf_monitor::watch(const range& /*pages*/) noexcept {
  if (works()) return {};
  return fail(errc::closed, "the kernel programs no longer serve this process");
}

// The programs stay attached while the holder's thread runs. Only a server can release this process, and it marks the
// ring as closed.
bool bpf_monitor::works() const noexcept { return !is_child() && !ring_.closed(); }

std::uint64_t bpf_monitor::drain_slowly() noexcept {
  if (is_child()) return drained().load(std::memory_order_acquire);
  return ring_.drain(event_log_, watched_);
}

// The child replaces the ring, which would show the parent's events, with an empty one, because the ring must stay
// readable.
void bpf_monitor::leave_to_parent() noexcept { ring_.become_empty(); }

result<std::unique_ptr<bpf_monitor>> make_bpf(invalidation::event_log& event_log,
                                              invalidation::registered_filter& watched, const bpf_source& source) {
  const os::no_fork until_held;  // a child would keep the programs attached in the whole system
  auto subscription = subscribe(source);
  if (!subscription) return tl::unexpected(subscription.error());
  return make_subscribed_bpf(event_log, watched, std::move(*subscription));
}

result<std::unique_ptr<bpf_monitor>> make_subscribed_bpf(invalidation::event_log& event_log,
                                                         invalidation::registered_filter& watched,
                                                         bpf_subscription subscription) {
  auto ring = bpf_ring::map(subscription.ring, subscription.first_generation);
  if (!ring) return tl::unexpected(ring.error());
  // The prctl that joined was a system call of this thread, and caused an event itself.
  if (ring->generation().load(std::memory_order_acquire) == subscription.first_generation)
    return fail(errc::unsupported, "the kernel programs do not see this process");
  subscription.ring = os::file();  // the mapping keeps the ring
  auto made = std::make_unique<bpf_monitor>(event_log, watched, std::move(*ring));
  auto started = made->start(std::move(subscription.links), std::move(subscription.connection));
  if (!started) return tl::unexpected(started.error());
  return made;
}

}  // namespace pinfold::monitors

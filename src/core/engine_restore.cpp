// SPDX-License-Identifier: BSD-3-Clause
// Registers again what `quiesce` closed, the most used first, on threads of its own.
#include "core/engine.hpp"
#include "os/check.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/lease_base.hpp>
#include <pinfold/restoration.hpp>

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace pinfold {

using detail::background_use;
using detail::engine;

/// The state that the workers and the ticket share. Guard: the mutex, for what stands below it.
struct restoration::state {
  state(background_use of, restore_options options) : use(std::move(of)), how(std::move(options)) {}
  ~state();

  void start(unsigned workers);
  void work() noexcept;
  [[nodiscard]] bool restore_one() noexcept;
  void note(const core::restored_now& one, const result<bool>& restored) noexcept;
  void call_back() noexcept;
  [[nodiscard]] bool here() const noexcept { return ::getpid() == process; }

  background_use use;
  restore_options how;
  const pid_t process = ::getpid();
  std::uint64_t quiesces = 0;  // of the engine, when this began
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;

  std::mutex calling;  // before the other: one callback at a time
  mutable std::mutex mutex;
  std::condition_variable left;
  restore_progress now;
  std::optional<error> first;
  std::size_t working = 0;
};

// In a child the threads do not exist.
restoration::state::~state() {
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& one : threads) one.join();
}

// Throws std::system_error if not even one thread can be started.
void restoration::state::start(unsigned workers) {
  threads.reserve(workers);
  working = workers;
  for (unsigned number = 0; number < workers; ++number) {
    try {
      threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (number == 0) throw;
      const std::scoped_lock guard(mutex);
      working -= workers - number;  // fewer threads are slower, not wrong
      return;
    }
  }
}

void restoration::state::work() noexcept {
  const detail::no_cancellation whole;
  while (!stop.load(std::memory_order_relaxed) && restore_one()) call_back();
  const std::scoped_lock guard(mutex);
  PINFOLD_ASSERT(working > 0, "a thread that ends was counted");
  if (--working == 0) left.notify_all();
}

bool restoration::state::restore_one() noexcept {
  const background_use::call guard(use);
  if (guard.on() == nullptr) return false;
  core::restored_now one;
  if (!guard.on()->begin_restoring(one, quiesces)) return false;
  note(one, guard.on()->restore(one));
  guard.on()->end_restoring(one);
  return true;
}

void restoration::state::note(const core::restored_now& one, const result<bool>& restored) noexcept {
  const std::scoped_lock guard(mutex);
  if (!restored) {
    ++now.failed;
    if (!first) first = restored.error();
  } else if (*restored) {
    ++now.restored;
    now.bytes += one.what.where.size();
  } else {
    ++now.skipped;
  }
}

void restoration::state::call_back() noexcept {
  const std::scoped_lock turn(calling);
  if (!how.progress) return;
  const restore_progress seen = [this] {
    const std::scoped_lock guard(mutex);
    return now;
  }();
  try {
    how.progress(seen);
  } catch (...) {
    how.progress = nullptr;
  }
}

restoration::restoration() noexcept = default;
restoration::restoration(std::unique_ptr<state> begun) noexcept : state_(std::move(begun)) {}
restoration::restoration(restoration&&) noexcept = default;
restoration& restoration::operator=(restoration&& other) noexcept {
  restoration old(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

restoration::~restoration() {
  const detail::no_cancellation whole;
  if (!state_ || state_->here()) return;
  [[maybe_unused]] const auto* const left = state_.release();  // a child has copies of threads that do not run
}

result<restoration> restoration::begin(engine* on, restore_options how) noexcept try {
  const detail::no_cancellation whole;
  auto use = background_use::begin(on);
  if (!use) return tl::unexpected(use.error());
  const auto workers = std::min(std::max(how.workers, 1U), 64U);
  auto begun = std::make_unique<state>(std::move(*use), std::move(how));
  const auto there = on->remembers();
  begun->now.total = there.count;
  begun->quiesces = there.quiesces;
  begun->start(workers);
  return restoration(std::move(begun));
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for a restoration");
} catch (const std::system_error& refused) {
  return fail_errno(errc::out_of_resources, refused.code().value(), "cannot start a thread to restore registrations");
}

restore_progress restoration::progress() const noexcept {
  if (!state_ || !state_->here()) return {};  // a child's copy of the mutex may be locked
  const std::scoped_lock guard(state_->mutex);
  return state_->now;
}

bool restoration::done() const noexcept {
  if (!state_ || !state_->here()) return true;
  const std::scoped_lock guard(state_->mutex);
  return state_->working == 0;
}

void restoration::wait() noexcept {
  if (!state_ || !state_->here()) return;
  const detail::no_cancellation whole;
  std::unique_lock guard(state_->mutex);
  state_->left.wait(guard, [this] { return state_->working == 0; });
}

bool restoration::wait_for(std::chrono::milliseconds longest) noexcept {
  if (!state_ || !state_->here()) return true;
  const detail::no_cancellation whole;
  std::unique_lock guard(state_->mutex);
  const auto most = std::clamp<std::chrono::milliseconds>(longest, std::chrono::milliseconds{0}, std::chrono::years{1});
  return state_->left.wait_for(guard, most, [this] { return state_->working == 0; });
}

void restoration::cancel() noexcept {
  if (state_) state_->stop.store(true, std::memory_order_relaxed);
}

result<void> restoration::failure() const noexcept {
  if (!state_ || !state_->here()) return {};
  const std::scoped_lock guard(state_->mutex);
  if (const auto& first = state_->first) return tl::unexpected(*first);
  return {};
}

}  // namespace pinfold

namespace pinfold::detail {

// Makes the registration, and gives it back at once: the cache keeps it. Returns false if there is no room for it: a
// registration that was used less must not evict one that is used now.
result<bool> engine::restore(const core::restored_now& one) noexcept {
  const auto granted = acquire_generally({.peer = one.what.peer,
                                          .wanted = one.what.where,
                                          .token = one.token.data(),
                                          .need = one.what.access,
                                          .persistent = one.what.persistent,
                                          .meanwhile = &one.meanwhile,
                                          .free_room_only = true});
  if (!granted && granted.error() == errc::over_budget) return false;
  if (!granted) return tl::unexpected(granted.error());
  if (auto released = lease_base(*granted).release(); !released) return tl::unexpected(released.error());
  return true;
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// Registers again what `quiesce` closed, the most used first, on threads of its own.
#include "core/engine.hpp"
#include "core/rundown.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"
#include "os/this_process.hpp"
#include "os/worker_group.hpp"

#include <pinfold/lease_base.hpp>
#include <pinfold/restoration.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace pinfold {

using detail::background_use;
using detail::engine;

/// The state that the workers and the ticket share. `mutex` guards `now` and `first`.
struct restoration::state {
  state(background_use of, restore_options options) : use(std::move(of)), how(std::move(options)) {}
  ~state() { working.stop(); }

  [[nodiscard]] result<void> start(unsigned workers) noexcept;
  void work() noexcept;
  [[nodiscard]] bool restore_one() noexcept;
  void note(const core::restored_now& one, const result<bool>& restored) noexcept;
  void call_back() noexcept;
  [[nodiscard]] bool here() const noexcept { return os::this_process() == process; }
  [[nodiscard]] bool done_by(core::deadline until) noexcept;

  background_use use;
  restore_options how;
  const std::uint64_t process = os::this_process();
  std::uint64_t quiesces = 0;  // the engine's count when this began
  core::rundown working;       // the threads that have not ended

  std::mutex calling;  // taken before `mutex`: one callback at a time
  mutable std::mutex mutex;
  restore_progress now;
  std::optional<error> first;
  os::worker_group threads;  // last: they use the other members
};

// Counts the threads before they start: the restoration is done when none is left.
result<void> restoration::state::start(unsigned workers) noexcept {
  for (unsigned number = 0; number < workers; ++number) static_cast<void>(working.enter());
  const auto started = threads.start(workers, [this](std::size_t) { work(); });
  for (auto number = started.value_or(0); number < workers; ++number) working.leave();
  if (started) return {};
  return fail_errno(started.error().code, started.error().native, "cannot start a thread to restore registrations");
}

void restoration::state::work() noexcept {
  while (!working.stopped() && restore_one()) call_back();
  working.leave();
}

bool restoration::state::done_by(core::deadline until) noexcept {
  const detail::no_cancellation whole;
  return working.wait_until(until);
}

bool restoration::state::restore_one() noexcept {
  const background_use::call guard(use);
  if (guard.on() == nullptr) return false;
  core::restored_now one;
  if (!guard.on()->quiesced().begin_restoring(one, quiesces)) return false;
  note(one, guard.on()->restore(one));
  guard.on()->quiesced().end_restoring(one);
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
  if (state_ && !state_->here()) {
    [[maybe_unused]] const auto* const left = state_.release();  // a child has copies of threads that do not run
  }
  state_.reset();  // under the guard: it joins the threads
}

result<restoration> restoration::begin(engine* on, restore_options how) noexcept try {
  const detail::no_cancellation whole;
  auto use = background_use::begin(on);
  if (!use) return tl::unexpected(use.error());
  const auto workers = std::min(std::max(how.workers, 1U), 64U);
  auto begun = std::make_unique<state>(std::move(*use), std::move(how));
  const auto there = on->quiesced().left();
  begun->now.total = there.count;
  begun->quiesces = there.quiesces;
  if (auto started = begun->start(workers); !started) return tl::unexpected(started.error());
  return restoration(std::move(begun));
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for a restoration");
}

restore_progress restoration::progress() const noexcept {
  if (!state_ || !state_->here()) return {};  // a child's copy of the mutex may be locked
  const std::scoped_lock guard(state_->mutex);
  return state_->now;
}

bool restoration::done() const noexcept { return !state_ || !state_->here() || state_->done_by({}); }

void restoration::wait() noexcept {
  while (!wait_for(std::chrono::years{1})) {
  }
}

bool restoration::wait_for(std::chrono::milliseconds longest) noexcept {
  return !state_ || !state_->here() || state_->done_by(os::deadline_in(longest, std::chrono::years{1}));
}

void restoration::cancel() noexcept {
  if (state_ && state_->here()) state_->working.stop();
}

result<void> restoration::failure() const noexcept {
  if (!state_ || !state_->here()) return {};
  const std::scoped_lock guard(state_->mutex);
  if (const auto& first = state_->first) return tl::unexpected(*first);
  return {};
}

}  // namespace pinfold

namespace pinfold::detail {

// Acquires the registration, and releases it at once: the cache keeps it. Returns false if there is no room for it: a
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

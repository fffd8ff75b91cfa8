// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"
#include "os/no_cancellation.hpp"
#include "os/this_process.hpp"
#include "os/worker_group.hpp"

#include <pinfold/detail/batch.hpp>
#include <pinfold/lease_base.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>

namespace pinfold::detail {

/// State shared by the workers and the reader. `mutex` guards all members below it. A worker takes the lowest number
/// not yet taken, if it is fewer than `depth` ahead of the reader.
struct pipeline::state {
  state(engine* cache, std::vector<request> requests, unsigned ahead)
      : on(cache), what(std::move(requests)), depth(std::max(1U, ahead)), made(what.size()) {}

  void work() noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || taken == what.size() || taken < read + depth; });
      if (stop || taken == what.size()) return;
      const auto mine = taken++;
      PINFOLD_ASSERT(read <= mine && !made[mine], "a chunk is registered once, ahead of the reader");
      lock.unlock();
      auto got = hit_or_acquire(what[mine]);
      lock.lock();
      if (!got) stop = true;
      made[mine] = got;
      changed.notify_all();
    }
  }

  result<grant> hit_or_acquire(const request& one) noexcept {
    if (const auto hit = look_up(on, one); hit.held != 0) return hit;
    return acquire_in_background(on, one);
  }

  // Returns whether this process began the work.
  [[nodiscard]] bool here() const noexcept { return os::this_process() == process; }

  const std::uint64_t process = os::this_process();
  engine* on;
  const std::vector<request> what;
  const std::size_t depth;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<result<grant>>> made;
  std::size_t taken = 0;
  std::size_t read = 0;
  bool stop = false;
  bool failed = false;       // an error was handed out
  os::worker_group workers;  // last: they use the other members
};

pipeline::pipeline(engine* on, std::vector<request> what, unsigned depth, unsigned workers)
    : state_(std::make_unique<state>(on, std::move(what), depth)) {
  const auto count = std::min<std::size_t>({std::max(1U, workers), state_->depth, state_->what.size(), most_workers});
  const auto started = state_->workers.start(count, [own = state_.get()](std::size_t) { own->work(); });
  if (!started) throw std::system_error(started.error().native, std::generic_category());
}

pipeline::pipeline(pipeline&&) noexcept = default;
pipeline& pipeline::operator=(pipeline&& other) noexcept {
  pipeline old(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

// A forked child has no such workers, and the parent's may have had the mutex: the child's copy stays.
pipeline::~pipeline() {
  if (!state_) return;
  if (!state_->here()) {
    [[maybe_unused]] const auto* const left_to_parent = state_.release();
    return;
  }
  const no_cancellation whole;
  {
    std::lock_guard guard(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->workers.join();
  for (auto& one : state_->made)
    if (one && *one) static_cast<void>(lease_base(**one));  // a failed close stays with the cache
}

std::size_t pipeline::size() const noexcept { return state_ ? state_->what.size() : 0; }

result<grant> pipeline::next() noexcept {
  if (!state_) return fail(errc::closed, "the chunks were moved from");
  if (!state_->here()) return fail(errc::closed, "the chunks belong to the parent process");
  const no_cancellation whole;
  std::unique_lock lock(state_->mutex);
  if (state_->read == state_->what.size()) return fail(errc::closed, "there are no more chunks");
  if (state_->failed) return fail(errc::closed, "an earlier chunk failed");
  auto& mine = state_->made[state_->read];
  PINFOLD_ASSERT(state_->read <= state_->taken, "the reader does not pass the workers");
  state_->changed.wait(lock, [&] { return mine || (state_->stop && state_->taken <= state_->read); });
  if (!mine) return fail(errc::closed, "an earlier chunk failed, and this one was not registered");
  const result<grant> got = *mine;
  state_->failed = !got;
  mine.reset();
  ++state_->read;
  state_->changed.notify_all();
  return got;
}

}  // namespace pinfold::detail

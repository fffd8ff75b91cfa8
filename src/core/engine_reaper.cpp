// SPDX-License-Identifier: BSD-3-Clause
// The optional thread that does due closes, and learns by itself of memory that went away (R60).
#include "core/engine.hpp"

namespace pinfold::detail {

namespace {

// An event wakes no thread: it may come in a signal handler, and a system call costs more than all the rest of the
// event. So the reaper polls. Half of the promised time is left for the closes.
constexpr std::chrono::milliseconds between_looks{50};

}  // namespace

// Waits for work. While nothing is registered that an event could concern or that could become idle, the thread sleeps
// until the first entry comes. Otherwise a poll costs two loads if nothing has happened.
void engine::wait_for_work() noexcept {
  if (table_.size() == 0 || (watched_ == nullptr && !sweep_.wanted())) return reaper_wake_.wait(mutex_);
  if (watched_ == nullptr) {
    reaper_wake_.wait_for(mutex_, sweep_.apart());
    return queue_idle();
  }
  reaper_wake_.wait_for(mutex_, between_looks);
  if (reaper_stop_ || view_.current()) return;
  mutex_.unlock();
  catch_up_with_everything();
  mutex_.lock();
}

void engine::reap() noexcept {
  while (!reaper_stop_) {
    if (table_.first_due() == nullptr) {
      wait_for_work();
    } else {
      static_cast<void>(close_queued(SIZE_MAX));  // on failure the entry is quarantined, and the sink told
    }
  }
}

// Runs the reaper's thread. The thread may be in the driver when the cache ends, and is then the last that needs the
// engine.
void engine::run_reaper(engine* home) noexcept {
  engine* last = nullptr;
  {
    os::scoped_lock guard(home->mutex_);
    home->reap();
    home->reaper_runs_ = false;
    home->waiting_.notify(home);
    last = home->leave_if_last();
  }
  destroy(last);
}

}  // namespace pinfold::detail

// SPDX-License-Identifier: BSD-3-Clause
// The optional thread that does due closes, and processes events without a request (R60).
#include "core/engine.hpp"

#include <chrono>
#include <optional>

namespace pinfold::detail {

namespace {

// An event wakes no thread: it may come in a signal handler, and a system call costs more than all the rest of the
// event. So the reaper polls. Half of the promised time is left for the closes.
constexpr std::chrono::milliseconds between_looks{50};

}  // namespace

// Returns whether anything is registered that an event could concern, or that could become idle.
bool engine::anything_to_watch() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  if (watched_ == nullptr && budget_.node() == nullptr && options_.idle_timeout == std::chrono::milliseconds(0))
    return false;
  std::size_t all = 0;
  for (const shard& in : shards_) all += in.table.size();
  return all > 0;
}

// Returns how long the reaper waits for work. While there is nothing to watch, it sleeps until the first entry wakes it
// (`claim`). Otherwise a poll costs two loads if nothing has happened.
std::optional<std::chrono::milliseconds> engine::time_to_next_look() const noexcept {
  if (!anything_to_watch()) {
    if (budget_.node() != nullptr) budget_.node()->trim();  // else this process would keep it from others
    return {};
  }
  return watched_ == nullptr && budget_.node() == nullptr ? options_.idle_timeout : between_looks;
}

void engine::wait_for_work() noexcept {
  if (!reaper_.wait(time_to_next_look())) return;
  if (watched_ != nullptr) return catch_up_with_everything();
  for (shard& in : shards_) {
    os::scoped_lock guard(in.mutex);
    queue_idle(in);
  }
}

void engine::reap() noexcept {
  while (!reaper_.stops()) {
    bool any = false;
    for (shard& in : shards_) {
      os::scoped_lock guard(in.mutex);
      any = any || in.table.first_due() != nullptr;
      static_cast<void>(close_queued(in, SIZE_MAX));  // on failure the entry is quarantined, and the sink told
    }
    if (any) continue;
    wait_for_work();
    give_way();
  }
}

// Runs the reaper's thread. The thread may be in the driver when the cache ends, and is then the last that needs the
// engine.
void engine::run_reaper(engine* home) noexcept {
  home->reap();
  home->reaper_.say_left();
  home->leave_shards();
  destroy(home->leave());
}

}  // namespace pinfold::detail

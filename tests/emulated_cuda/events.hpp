// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The progress of an event's work, in memory that is shared by all processes that have the event open.
#pragma once

#include "driver.hpp"

#include <atomic>

namespace emulated_cuda {

/// The counters of an event. Each record takes the next number; the event is done when the newest number is.
struct event_progress {
  std::atomic<std::uint32_t> recorded{0};
  std::atomic<std::uint32_t> completed{0};
  std::atomic<std::int32_t> recorder{0};  ///< the recording process; when it ends, its work counts as ended, too
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Keeps the progress mapped while any share of it exists.
using progress = std::shared_ptr<event_progress>;

/// Returns null when there is no memory.
progress map_progress(const backing& memory) noexcept;

/// Returns whether the work recorded as `number`, or later work, is done.
bool is_done(const event_progress& of, std::uint32_t number) noexcept;
void wait_for(event_progress& of, std::uint32_t number) noexcept;
void complete(event_progress& of, std::uint32_t number) noexcept;

}  // namespace emulated_cuda

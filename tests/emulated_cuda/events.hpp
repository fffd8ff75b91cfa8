// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How far the work is that an event stands for: in memory that all processes share which have the event open.
#pragma once

#include "driver.hpp"

#include <atomic>

namespace emulated_cuda {

/// Each record takes the next number; the event is done when the newest number is.
struct event_progress {
  std::atomic<std::uint32_t> recorded{0};
  std::atomic<std::uint32_t> completed{0};
  std::atomic<std::int32_t> recorder{0};  ///< the process; what it recorded is over when it ends
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Keeps the progress mapped for as long as anyone has a share of it.
using progress = std::shared_ptr<event_progress>;

/// Null: no memory.
progress map_progress(const backing& memory) noexcept;

/// The work recorded as `number`, or later work.
bool is_done(const event_progress& of, std::uint32_t number) noexcept;
void wait_for(event_progress& of, std::uint32_t number) noexcept;
void complete(event_progress& of, std::uint32_t number) noexcept;

}  // namespace emulated_cuda

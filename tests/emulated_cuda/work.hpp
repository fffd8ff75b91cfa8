// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Work of streams. It is done in order within a stream. The default stream waits for the streams that were made to
/// synchronize with it, and they wait for it.
///
/// The submitting thread does the work, if it can be done at once, and otherwise a thread of the stream. All functions
/// take the driver's lock themselves: call them without any lock, except `destroy_work_of`.
#pragma once

#include "driver.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace emulated_cuda {

struct task {
  std::function<bool()> ready;  ///< returns true once `run` would not wait; empty when `run` never waits
  std::function<status()> run;
};

/// The queue of a stream. Shared by its owner, its thread, and work of other streams that waits for it.
class work_queue : public std::enable_shared_from_this<work_queue> {
 public:
  explicit work_queue(bool synchronizes) noexcept : synchronizes_(synchronizes) {}

  void submit(task given);
  /// Returns the number of the work submitted so far, for `done` and `wait`.
  std::uint64_t submitted();
  bool done(std::uint64_t up_to);
  void wait(std::uint64_t up_to);
  /// Returns the first failure since the stream was made.
  status failure();
  [[nodiscard]] bool synchronizes() const noexcept { return synchronizes_; }

 private:
  void run_one(task now, std::unique_lock<std::mutex>& held);
  void run_all();

  const bool synchronizes_;
  std::mutex guard_;
  std::condition_variable progress_;
  std::deque<task> waiting_;
  std::uint64_t submitted_ = 0;
  std::uint64_t done_ = 0;
  status failure_ = status::success;
  bool busy_ = false;
  bool has_thread_ = false;
};

using queue = std::shared_ptr<work_queue>;

/// The stream and context that work goes to. A null stream means the current context's default stream.
struct destination {
  queue to;
  context_object* context = nullptr;
  status why = status::success;  ///< if invalid: invalid_context, context_is_destroyed, invalid_handle
};
destination find_stream(stream wanted) noexcept;

/// Gives the work to the stream, behind the work in the context's other streams that must precede it.
void give_work(const destination& in, task given);

/// Waits for all work of the context's streams, except of streams that do not synchronize.
void finish_work_of(const context_object& context) noexcept;

/// Forgets the streams and events of the context. Their work may still be under way. The caller holds the driver's
/// lock.
void destroy_work_of(const context_object& context) noexcept;
void destroy_events_of(const context_object& context) noexcept;

}  // namespace emulated_cuda

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What streams are given to do. In order within a stream; the default stream waits for those that were made to
/// synchronize with it, and they for it.
///
/// Work is done by the thread that gives it, if it can be done at once, and by a thread of the stream otherwise. All of
/// this takes the driver's lock itself: call it with none held, but for `destroy_work_of`.
#pragma once

#include "driver.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace emulated_cuda {

struct task {
  std::function<bool()> ready;  ///< true: `run` will not wait for anyone. May be empty: it never does
  std::function<status()> run;
};

/// Shared by its owner, its thread, and work elsewhere that waits for it.
class work_queue : public std::enable_shared_from_this<work_queue> {
 public:
  explicit work_queue(bool synchronizes) noexcept : synchronizes_(synchronizes) {}

  void submit(task given);
  /// All that was submitted so far, to name it to `done` and `wait`.
  std::uint64_t submitted();
  bool done(std::uint64_t up_to);
  void wait(std::uint64_t up_to);
  /// The first failure since the stream was made.
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

/// Where work for the stream goes, and for which context. Null stream: the current context's default stream.
struct destination {
  queue to;
  context_object* context = nullptr;
  status why = status::success;  ///< if not: invalid_context, context_is_destroyed, invalid_handle
};
destination find_stream(stream wanted) noexcept;

/// Gives the work to the stream, behind what it must come after in the context's other streams.
void give_work(const destination& in, task given);

/// Waits until all that the context's streams were given is done, but for streams that do not synchronize.
void finish_work_of(const context_object& context) noexcept;

/// The streams and events of the context are no more. What they were given may still be under way. Under the driver's
/// lock.
void destroy_work_of(const context_object& context) noexcept;
void destroy_events_of(const context_object& context) noexcept;

}  // namespace emulated_cuda

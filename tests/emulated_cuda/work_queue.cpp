// SPDX-License-Identifier: BSD-3-Clause
#include "work.hpp"

#include <chrono>
#include <thread>

namespace emulated_cuda {

namespace {

unsigned stream_delay() {
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  return all.set.stream_delay;
}

}  // namespace

void work_queue::submit(task given) {
  // `ready` is called without this lock, since it may take locks of other queues.
  const bool at_once = stream_delay() == 0 && (!given.ready || given.ready());
  std::unique_lock held(guard_);
  ++submitted_;
  const bool idle = !busy_ && waiting_.empty();
  if (idle && at_once) {
    run_one(std::move(given), held);
    if (waiting_.empty()) return;
  } else {
    waiting_.push_back(std::move(given));
  }
  if (has_thread_ || busy_) return;  // the busy thread checks again
  has_thread_ = true;
  std::thread([self = shared_from_this()] { self->run_all(); }).detach();
}

void work_queue::run_one(task now, std::unique_lock<std::mutex>& held) {
  busy_ = true;
  held.unlock();
  const status result = now.run();
  held.lock();
  busy_ = false;
  ++done_;
  if (failure_ == status::success) failure_ = result;
  progress_.notify_all();
}

void work_queue::run_all() {
  std::unique_lock held(guard_);
  while (!waiting_.empty()) {
    task next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    held.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(stream_delay()));
    held.lock();
    run_one(std::move(next), held);
  }
  has_thread_ = false;
}

std::uint64_t work_queue::submitted() {
  const std::lock_guard held(guard_);
  return submitted_;
}

bool work_queue::done(std::uint64_t up_to) {
  const std::lock_guard held(guard_);
  return done_ >= up_to;
}

void work_queue::wait(std::uint64_t up_to) {
  std::unique_lock held(guard_);
  progress_.wait(held, [&] { return done_ >= up_to; });
}

status work_queue::failure() {
  const std::lock_guard held(guard_);
  return failure_;
}

}  // namespace emulated_cuda

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The thread that reads the events and writes them to the event log.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"
#include "monitors/userfaultfd/kernel.hpp"
#include "monitors/userfaultfd/maps.hpp"
#include "monitors/userfaultfd/pages.hpp"

#include <atomic>
#include <pthread.h>

namespace pinfold::monitors::uffd {

/// Reads the events in a thread. A thread that unmaps watched memory waits for it, so it waits for no thread and never
/// gives up: after an unknown error it still tries to read.
class reader {
 public:
  /// The arguments must outlive `join`.
  reader(invalidation::event_log& event_log, invalidation::registered_filter& watched, descriptor& uffd) noexcept
      : event_log_(event_log), watched_(watched), descriptor_(uffd), uffd_(uffd.number) {}

  /// Starts the thread, to which the userfaultfd belongs from then on, and returns when it reads.
  [[nodiscard]] result<void> start() noexcept;

  /// Only for the process that called `start`. The thread stops watching all memory before it ends. Where it cannot
  /// list the mappings, it reads for good, without this object: a process has at most one such thread.
  void stop_reading() noexcept;

  /// Called after `stop_reading`, and after the userfaultfd was closed: a thread that ends may unmap watched memory
  /// when no thread reads any more.
  void join() noexcept;

  /// Reports the failure: from now on no entry may be kept because of this monitor.
  void fail() noexcept;
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Returns the kernel's number of the thread, after `start`.
  [[nodiscard]] pid_t thread_id() const noexcept { return thread_id_; }

  /// Called when the thread is joined and the userfaultfd is closed.
  void give_back() noexcept {
    if (outcome_.load(std::memory_order_relaxed) != stays) pages_.give_back();
  }

 private:
  static void* main(void* self) noexcept;
  [[nodiscard]] int create() noexcept;
  [[nodiscard]] int unshare_descriptors() noexcept;
  void run() noexcept;
  [[nodiscard]] bool release_all() noexcept;
  [[noreturn]] static void read_for_good(int uffd) noexcept;
  void read_and_publish() noexcept;
  void publish(std::uint64_t reserved, const event& seen) noexcept;
  [[nodiscard]] range lost_by(const event& seen) const noexcept;
  void pause() noexcept;

  static constexpr int starting = -1;
  static constexpr int undecided = 0;
  static constexpr int ends = 1;
  static constexpr int stays = 2;

  invalidation::event_log& event_log_;
  invalidation::registered_filter& watched_;
  descriptor& descriptor_;
  const int uffd_;
  own_pages pages_;
  pthread_t thread_{};
  pid_t thread_id_ = 0;
  std::atomic<int> started_{starting};  // then 0 or an errno
  own_memory here_;                     // in the thread's own table
  std::atomic<int> outcome_{undecided};
  std::atomic<bool> stops_{false};
  bool rung_ = false;  // used by the thread alone
  std::atomic<bool> failed_{false};
};

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The thread that reads the events and puts them on the board.
#pragma once

#include "monitors/userfaultfd_kernel.hpp"
#include "monitors/userfaultfd_pages.hpp"
#include "watch/board.hpp"
#include "watch/watched_memory.hpp"

#include <atomic>
#include <pthread.h>

namespace pinfold::monitors::uffd {

/// Whoever unmaps watched memory waits for it, so it waits for nobody and never gives up: after an error that it does
/// not know it still tries to read.
class reader {
 public:
  /// Needs what it is given until `join` returned.
  reader(watch::board& board, watch::watched_memory& watched, int uffd) noexcept
      : board_(board), watched_(watched), uffd_(uffd) {}

  /// Returns when it reads.
  [[nodiscard]] result<void> start() noexcept;

  /// Only in the process that started it. Watched memory may be unmapped until this begins.
  void stop_reading() noexcept;

  /// After that, and after the userfaultfd was closed: what else ends a thread may unmap something that is watched
  /// still, and then nobody reads.
  void join() noexcept;

  /// From now on nothing may be kept on its word.
  void fail() noexcept;
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// The kernel's number of the thread, after `start`.
  [[nodiscard]] pid_t thread_id() const noexcept { return thread_id_; }

  [[nodiscard]] const own_pages& pages() const noexcept { return pages_; }

  /// When its thread is gone, and the userfaultfd closed.
  void give_back() noexcept { pages_.give_back(); }

 private:
  static void* main(void* self) noexcept;
  [[nodiscard]] int create() noexcept;
  [[nodiscard]] int settle_in() noexcept;
  void run() noexcept;
  void read_and_publish() noexcept;
  void publish(std::uint64_t reserved, const event& seen) noexcept;
  [[nodiscard]] range lost_by(const event& seen) const noexcept;
  void pause() noexcept;

  static constexpr int starting = -1;

  watch::board& board_;
  watch::watched_memory& watched_;
  int uffd_;
  own_pages pages_;
  pthread_t thread_{};
  pid_t thread_id_ = 0;
  std::atomic<int> started_{starting};  // then 0 or an errno
  bool rung_ = false;                   // the thread's own
  std::atomic<bool> failed_{false};
};

}  // namespace pinfold::monitors::uffd

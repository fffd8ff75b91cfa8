// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A thread of the library that another thread wakes and stops.
#pragma once

#include "os/file.hpp"

#include <array>
#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace pinfold::os {

/// Runs `body(self)` until it returns. Not std::thread: its destructor ends the process in a forked child, where the
/// thread cannot be joined. The thread blocks all signals, which the application's threads handle.
class thread {
 public:
  thread() noexcept = default;
  thread(const thread&) = delete;
  thread& operator=(const thread&) = delete;
  ~thread() = default;

  /// Starts it. Errors: `out_of_resources`, and the system's.
  [[nodiscard]] result<void> start(const char* name, void (*body)(void* self), void* self) noexcept;

  /// Tells the thread to end, and waits for its end. In a forked child, and on the thread itself, waits for nothing.
  void stop() noexcept;

  /// Whether the caller is the thread, and `stop` was not called.
  [[nodiscard]] bool is_this() const noexcept { return running_ && ::pthread_equal(number_, ::pthread_self()) != 0; }

  /// Makes `wake_end` readable.
  void wake() noexcept;

  // For the thread:
  [[nodiscard]] const file& wake_end() const noexcept { return ends_[0]; }
  /// Reads what `wake` wrote. Returns false when the thread is to end.
  [[nodiscard]] bool goes_on() noexcept;

 private:
  std::array<file, 2> ends_;
  std::atomic<bool> stop_{false};
  const pid_t process_ = ::getpid();
  bool running_ = false;
  pthread_t number_{};
  const char* name_ = "";
  void (*body_)(void*) = nullptr;
  void* self_ = nullptr;
};

}  // namespace pinfold::os

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A thread of the library that another thread wakes and stops.
#pragma once

#include "os/file.hpp"
#include "os/this_process.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <pthread.h>

namespace pinfold::os {

/// Runs `body(self)` until it returns. Not std::thread, whose destructor ends the process in a forked child, where the
/// thread cannot be joined. The thread blocks all signals, which the application's threads handle.
class thread {
 public:
  thread() noexcept = default;
  thread(const thread&) = delete;
  thread& operator=(const thread&) = delete;
  ~thread() = default;

  /// Starts the thread. Errors: `out_of_resources`, and the system's.
  [[nodiscard]] result<void> start(const char* name, void (*body)(void* self), void* self) noexcept;

  /// Makes the thread end, and waits for its end. In a forked child, and on the thread itself, does not wait.
  void stop() noexcept;

  /// Makes `wake_end` readable.
  void wake() noexcept;

  // For the thread:
  [[nodiscard]] const file& wake_end() const noexcept { return ends_[0]; }
  /// Returns whether the thread must end.
  [[nodiscard]] bool stops() const noexcept { return stop_.load(std::memory_order_seq_cst); }
  /// Reads what `wake` wrote. Returns false if the thread must end.
  [[nodiscard]] bool goes_on() noexcept;

 private:
  std::array<file, 2> ends_;
  std::atomic<bool> stop_{false};
  const std::uint64_t process_ = this_process();
  bool running_ = false;
  pthread_t number_{};
  const char* name_ = "";
  void (*body_)(void*) = nullptr;
  void* self_ = nullptr;
};

}  // namespace pinfold::os

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The primary context of a device, current for one call and no longer.
#pragma once

#include "registrars/cuda_driver.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace pinfold::cuda {

/// While it lives, calls of this thread do not end the capture of a graph that another thread is at.
class relaxed_capture {
 public:
  explicit relaxed_capture(const driver_table& calls) noexcept : calls_(calls) { exchange(); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;
  ~relaxed_capture() { exchange(); }

 private:
  void exchange() noexcept {
    if (calls_.thread_exchange_stream_capture_mode != nullptr)
      static_cast<void>(calls_.thread_exchange_stream_capture_mode(&mode_));
  }

  const driver_table& calls_;
  capture_mode mode_ = capture_mode::relaxed;  // then the thread's own
};

/// Holds the primary context of one device, the one that the CUDA runtime uses, too. Thread-safe.
class primary_context {
 public:
  /// Retains it, which makes it where there is none yet (slow). `invalid_argument` when there is no such device.
  [[nodiscard]] static result<std::shared_ptr<primary_context>> of(int ordinal) noexcept;

  primary_context(const primary_context&) = delete;
  primary_context& operator=(const primary_context&) = delete;
  ~primary_context();  ///< releases it, except in a forked child, which has none

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const driver_table& calls() const noexcept { return calls_; }
  [[nodiscard]] const uuid& id() const noexcept { return id_; }

  /// Whether this is a forked child's copy: CUDA's contexts end at fork(2).
  [[nodiscard]] bool inherited() const noexcept;

  /// Which life of the context this is: another once the device was reset, or the context released by all and made
  /// again. 0 where it has none now, and where the driver does not tell (before CUDA 12, or when it fails).
  [[nodiscard]] std::uint64_t life() const noexcept;

  /// Whether the driver says that it is another life now, or none: what was opened in that one is gone. A driver that
  /// fails, or does not tell, says nothing of the sort.
  [[nodiscard]] bool is_over(std::uint64_t life) const noexcept;

  /// Makes it current, calls `work`, which gives a `status`, and makes current again what was. A failure to do so
  /// counts as `work`'s unless that failed itself.
  template <class Work>
  [[nodiscard]] status with(Work&& work) const {
    const relaxed_capture relaxed(calls_);
    if (const status pushed = calls_.ctx_push_current(held_); pushed != status::success) return pushed;
    popping after{calls_};
    const status answer = std::forward<Work>(work)();
    const status popped = after.pop();
    return answer != status::success ? answer : popped;
  }

 private:
  primary_context(const driver_table& calls, int ordinal, device number, context held, const uuid& id) noexcept;

  /// Pops once, also when an exception passes.
  class popping {
   public:
    explicit popping(const driver_table& calls) noexcept : calls_(&calls) {}
    popping(const popping&) = delete;
    popping& operator=(const popping&) = delete;
    ~popping() {
      if (calls_ != nullptr) static_cast<void>(pop());
    }
    [[nodiscard]] status pop() noexcept {
      context popped = nullptr;
      return std::exchange(calls_, nullptr)->ctx_pop_current(&popped);
    }

   private:
    const driver_table* calls_;
  };

  const driver_table& calls_;
  const int ordinal_;
  const device number_;
  const context held_;
  const uuid id_;
  const int process_;
};

/// The primary context that a back end uses, retained when it is first needed. Thread-safe.
class device_context {
 public:
  /// Errors as `primary_context::of`; `unsupported` in a forked child.
  [[nodiscard]] result<const primary_context*> get(int ordinal) noexcept;

  /// What `get` gave; null before that, and in a forked child.
  [[nodiscard]] const primary_context* retained() const noexcept;

  /// The same, to be kept for longer than this.
  [[nodiscard]] std::shared_ptr<const primary_context> shared() const noexcept;

 private:
  // Which process's threads may hold the mutex, from before the first of them takes it: to make a context takes long,
  // and in a child that was forked meanwhile nobody gives the mutex up. 0: none yet.
  std::atomic<int> process_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<primary_context> retained_;  // written once
};

}  // namespace pinfold::cuda

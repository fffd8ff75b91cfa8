// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The primary context of a device, made current for one call at a time.
#pragma once

#include "cuda/driver.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace pinfold::cuda {

/// While it lives, calls of this thread do not end the graph capture of another thread.
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
  capture_mode mode_ = capture_mode::relaxed;  // afterwards the thread's own mode
};

/// Holds the primary context of one device, which the CUDA runtime uses, too. Thread-safe.
class primary_context {
 public:
  /// Retains the context, which makes it if there is none yet (slow). `invalid_argument` when there is no such device.
  [[nodiscard]] static result<std::shared_ptr<primary_context>> of(int ordinal) noexcept;

  primary_context(const primary_context&) = delete;
  primary_context& operator=(const primary_context&) = delete;
  ~primary_context();  ///< releases the context, except in a forked child, which has none

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const driver_table& calls() const noexcept { return calls_; }
  [[nodiscard]] const uuid& id() const noexcept { return id_; }

  /// Whether this is a forked child's copy: CUDA's contexts end at fork(2).
  [[nodiscard]] bool inherited() const noexcept;

  /// Returns the number of the context's present life: it changes when the device is reset, or when all holders release
  /// the context and it is made again. 0 if it has no life now, or if the driver does not report it (before CUDA 12, or
  /// on a failure).
  [[nodiscard]] std::uint64_t life() const noexcept;

  /// Whether the driver reports another life, or none: everything opened in the given life is then gone. False if the
  /// driver fails or does not report it.
  [[nodiscard]] bool is_over(std::uint64_t life) const noexcept;

  /// Makes the context current, calls `work`, which returns a `status`, and restores the previous context. Returns a
  /// failure to do so unless `work` itself failed.
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
  const std::uint64_t process_;
};

/// The primary context that a back end uses, retained at its first use. Thread-safe.
class device_context {
 public:
  /// Returns the context. Errors as `primary_context::of`; `unsupported` in a forked child.
  [[nodiscard]] result<const primary_context*> get(int ordinal) noexcept;

  /// Returns the context that `get` retained; null before that, and in a forked child.
  [[nodiscard]] const primary_context* retained() const noexcept;

  /// Returns the context of `get`, for holders that outlive this object.
  [[nodiscard]] std::shared_ptr<const primary_context> shared() const noexcept;

 private:
  // The process whose threads may hold the mutex, set before the first of them locks it; 0: none yet. Making a context
  // takes long, and in a child forked meanwhile no thread unlocks the mutex.
  std::atomic<std::uint64_t> process_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<primary_context> retained_;  // written once
};

}  // namespace pinfold::cuda

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A stand-in for a device that registers local memory, which tests can steer. It never touches the memory.
#pragma once

#include <pinfold/registrar.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace pinfold::testing {

/// The device's registrations. Thread-safe.
class fake_device {
 public:
  struct registered {
    range memory;
    access_flags access;
  };
  using fault = std::function<std::optional<error>(const range&, access_flags)>;

  registrar_limits limits{.granularity = 1, .supported = static_cast<access_flags>(31)};
  std::size_t capacity = SIZE_MAX;
  bool refuses_overlaps = false;            ///< with `already_mapped`, as some drivers do
  std::chrono::microseconds call_takes{0};  ///< for every call of the driver, however many ranges it registers

  std::function<void()> on_open;    ///< called before an open or a group of opens, without a lock
  std::function<void()> on_close;   ///< called before a close, without a lock
  std::function<void()> on_limits;  ///< called in `limits`: before a request claims an entry

  std::atomic<std::size_t> calls{0};  ///< calls of open and open_many
  std::atomic<std::size_t> opened{0};
  std::atomic<std::size_t> misuses{0};

  void fail_opens(fault with) {
    std::lock_guard guard(mutex_);
    open_fault_ = std::move(with);
  }
  /// Makes the next `count` closes fail.
  void fail_closes(int count) { failing_closes_ = count; }

  [[nodiscard]] std::map<std::uint64_t, registered> now() const {
    std::lock_guard guard(mutex_);
    return open_;
  }
  [[nodiscard]] std::size_t open_count() const {
    std::lock_guard guard(mutex_);
    return open_.size();
  }

  [[nodiscard]] result<std::uint64_t> enter(const range& memory, access_flags access) {
    std::lock_guard guard(mutex_);
    if (open_fault_)
      if (auto failure = open_fault_(memory, access)) return tl::unexpected(*failure);
    if (refuses_overlaps)
      for (const auto& [key, one] : open_)
        if (one.memory.overlaps(memory))
          return fail_errno(errc::already_mapped, 22, "the device has registered some of it already");
    if (open_.size() >= capacity) return fail_errno(errc::out_of_resources, 12, "the device is full");
    open_[++last_] = {memory, access};
    ++opened;
    return last_;
  }
  [[nodiscard]] result<void> leave(std::uint64_t key) {
    if (on_close) on_close();
    std::lock_guard guard(mutex_);
    if (failing_closes_ > 0) {
      --failing_closes_;
      return fail_errno(errc::driver_error, 5, "the close fails");
    }
    if (open_.erase(key) == 0) ++misuses;
    return {};
  }
  void call() {
    ++calls;
    if (on_open) on_open();
    if (call_takes.count() > 0) std::this_thread::sleep_for(call_takes);
  }

 private:
  mutable std::mutex mutex_;
  fault open_fault_;
  std::atomic<int> failing_closes_{0};
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, registered> open_;
};

class fake_registrar {
 public:
  static constexpr const char* name = "pretend";
  struct registration_type {
    std::uint64_t key;
  };

  explicit fake_registrar(std::shared_ptr<fake_device> device) : device_(std::move(device)) {}

  [[nodiscard]] registrar_limits limits() const noexcept {
    if (device_->on_limits) device_->on_limits();
    return device_->limits;
  }
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    device_->call();
    return device_->enter(memory, access).map([](std::uint64_t key) { return registration_type{key}; });
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept { return device_->leave(made.key); }

 protected:
  std::shared_ptr<fake_device> device_;
};

/// A registrar that registers any number of ranges with one call.
class fake_group_registrar : public fake_registrar {
 public:
  using fake_registrar::fake_registrar;
  void open_many(std::span<const range> memory, access_flags access,
                 std::span<result<registration_type>> made) noexcept {
    device_->call();
    for (std::size_t i = 0; i < memory.size(); ++i)
      made[i] = device_->enter(memory[i], access).map([](std::uint64_t key) { return registration_type{key}; });
  }
};

}  // namespace pinfold::testing

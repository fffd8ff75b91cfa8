// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The common begin of every entry point: counts the call, sleeps, and fails where a test wants it to.
#pragma once

#include "driver.hpp"

#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>

/// Exports an entry point under NVIDIA's name.
#define EMULATED_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace emulated_cuda {

/// One of `entry_points`, looked up at compile time.
struct call {
  std::size_t index = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): entry points name themselves by their symbol
  consteval call(const char* symbol) {
    while (std::string_view{entry_points[index].symbol} != symbol) ++index;
  }
};

/// Returns a code to return at once: the test's, or that of an uninitialised driver. On success the call goes on.
status begin(call which) noexcept;
/// Does the same for the few functions that need no cuInit.
status begin_uninitialised(call which) noexcept;

/// The calling thread's context, or the reason why there is no usable one.
struct current_context {
  context_object* context = nullptr;
  status why = status::success;
};
current_context current() noexcept;

template <class Lock, class Body>
status guarded(call which, Body body) noexcept try {
  if (const status early = begin(which); early != status::success) return early;
  driver& all = the_driver();
  const Lock held(all.guard);
  return body(all);
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

/// Runs work that changes the driver's state, under the exclusive lock.
template <class Body>
status changing(call which, Body body) noexcept {
  return guarded<std::unique_lock<std::shared_mutex>>(which, body);
}

/// Runs work that only reads the driver's state, under the shared lock.
template <class Body>
status reading(call which, Body body) noexcept {
  return guarded<std::shared_lock<std::shared_mutex>>(which, body);
}

template <class Body>
status changing_in_context(call which, Body body) noexcept {
  return changing(which, [&](driver& all) {
    const auto now = current();
    return now.why != status::success ? now.why : body(all, *now.context);
  });
}

template <class Body>
status reading_in_context(call which, Body body) noexcept {
  return reading(which, [&](driver& all) {
    const auto now = current();
    return now.why != status::success ? now.why : body(all, *now.context);
  });
}

}  // namespace emulated_cuda

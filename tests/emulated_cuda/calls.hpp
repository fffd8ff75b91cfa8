// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What every entry point does before its own work: counts the call, sleeps, fails where a test wants it to.
#pragma once

#include "driver.hpp"

#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>

/// Seen by whoever loads the library, under NVIDIA's name.
#define EMULATED_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace emulated_cuda {

/// One of `entry_points`, found by the compiler.
struct call {
  std::size_t index = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): entry points name themselves by their symbol
  consteval call(const char* symbol) {
    while (std::string_view{entry_points[index].symbol} != symbol) ++index;
  }
};

/// The code to return at once: the test's, or that of a driver that is not initialised. Success: go on.
status begin(call which) noexcept;
/// As above, of the few functions that need no cuInit.
status begin_uninitialised(call which) noexcept;

/// The context of the calling thread, or why there is none that works.
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

/// Work that changes the driver's state, alone in it.
template <class Body>
status changing(call which, Body body) noexcept {
  return guarded<std::unique_lock<std::shared_mutex>>(which, body);
}

/// Work beside other such work.
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

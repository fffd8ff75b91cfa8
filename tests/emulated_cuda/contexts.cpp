// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"
#include "work.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace emulated_cuda {

namespace {

thread_local std::vector<context_object*> stack;

unsigned long long last_life = 0;  // guarded by the driver's lock, held exclusively

status destroy(driver& all, context_object& gone) {
  destroy_work_of(gone);
  destroy_mappings_of(all, gone);
  destroy_registrations_of(all, gone);
  destroy_memory_of(all, gone);
  gone.active = false;
  return status::success;
}

bool is_primary(driver& all, const context_object* wanted) noexcept {
  return wanted >= all.contexts.data() && wanted < all.contexts.data() + all.set.devices;
}

bool known(driver& all, const context_object* wanted) noexcept {
  return is_primary(all, wanted) || std::any_of(all.made_contexts.begin(), all.made_contexts.end(),
                                                [&](const context_object& each) { return &each == wanted; });
}

/// For entry points that pinfold does not call, which are not counted and fail only by themselves.
template <class Body>
status changing_uncounted(Body body) noexcept try {
  if (!initialised()) return status::not_initialized;
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  return body(all);
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

template <class Body>
status with_device(call which, device of, Body body) noexcept {
  return changing(which, [&](driver& all) {
    if (of < 0 || static_cast<unsigned>(of) >= all.set.devices) return status::invalid_device;
    return body(all, all.contexts[static_cast<unsigned>(of)]);
  });
}

}  // namespace

current_context current() noexcept {
  if (stack.empty()) return {nullptr, status::invalid_context};
  if (!stack.back()->active) return {nullptr, status::context_is_destroyed};
  return {stack.back(), status::success};
}

EMULATED_CUDA_EXPORT status cuDevicePrimaryCtxRetain(context* retained, device of) noexcept {
  return with_device("cuDevicePrimaryCtxRetain", of, [&](driver&, context_object& found) {
    if (retained == nullptr) return status::invalid_value;
    ++found.retained;
    if (!found.active) found.life = ++last_life;
    found.active = true;
    *retained = &found;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDevicePrimaryCtxRelease_v2(device of) noexcept {
  return with_device("cuDevicePrimaryCtxRelease_v2", of, [&](driver& all, context_object& found) {
    if (found.retained == 0) return status::invalid_context;
    return --found.retained == 0 && found.active ? destroy(all, found) : status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDevicePrimaryCtxReset_v2(device of) noexcept {
  return with_device("cuDevicePrimaryCtxReset_v2", of, [&](driver& all, context_object& found) {
    return found.active ? destroy(all, found) : status::success;
  });
}

EMULATED_CUDA_EXPORT status cuCtxCreate_v2(context* made, unsigned flags, device of) noexcept {
  return changing_uncounted([&](driver& all) {
    constexpr unsigned all_flags = 0xff;
    if (made == nullptr || flags > all_flags) return status::invalid_value;
    if (of < 0 || static_cast<unsigned>(of) >= all.set.devices) return status::invalid_device;
    all.made_contexts.push_back({.of = of, .active = true, .retained = 1, .life = ++last_life});
    *made = &all.made_contexts.back();
    stack.push_back(*made);
    return status::success;
  });
}

// It stays current to other threads.
EMULATED_CUDA_EXPORT status cuCtxDestroy_v2(context destroyed) noexcept {
  return changing_uncounted([&](driver& all) {
    if (!known(all, destroyed) || is_primary(all, destroyed)) return status::invalid_context;
    if (!destroyed->active) return status::context_is_destroyed;
    if (!stack.empty() && stack.back() == destroyed) stack.pop_back();
    return destroy(all, *destroyed);
  });
}

EMULATED_CUDA_EXPORT status cuCtxPushCurrent_v2(context pushed) noexcept {
  return reading("cuCtxPushCurrent_v2", [&](driver& all) {
    if (!known(all, pushed)) return status::invalid_context;
    if (!pushed->active) return status::context_is_destroyed;
    stack.push_back(pushed);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuCtxPopCurrent_v2(context* popped) noexcept {
  return reading("cuCtxPopCurrent_v2", [&](driver&) {
    if (stack.empty()) return status::invalid_context;
    if (popped != nullptr) *popped = stack.back();
    stack.pop_back();
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuCtxSetCurrent(context wanted) noexcept {
  return reading("cuCtxSetCurrent", [&](driver& all) {
    if (wanted != nullptr && !known(all, wanted)) return status::invalid_context;
    if (wanted != nullptr && !wanted->active) return status::context_is_destroyed;
    if (!stack.empty()) stack.pop_back();
    if (wanted != nullptr) stack.push_back(wanted);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuCtxGetCurrent(context* now) noexcept {
  return reading("cuCtxGetCurrent", [&](driver&) {
    if (now == nullptr) return status::invalid_value;
    *now = stack.empty() ? nullptr : stack.back();
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuCtxGetId(context of, unsigned long long* id) noexcept {
  return reading("cuCtxGetId", [&](driver& all) {
    if (of == nullptr && !stack.empty()) of = stack.back();
    if (!known(all, of) || id == nullptr) return status::invalid_value;
    if (!of->active) return status::context_is_destroyed;
    *id = of->life;
    return status::success;
  });
}

// The emulation never captures.
EMULATED_CUDA_EXPORT status cuThreadExchangeStreamCaptureMode(capture_mode* exchanged) noexcept {
  thread_local auto mode = capture_mode::global;
  if (exchanged == nullptr) return status::invalid_value;
  std::swap(mode, *exchanged);
  return status::success;
}

EMULATED_CUDA_EXPORT status cuCtxGetDevice(device* now) noexcept {
  return reading_in_context("cuCtxGetDevice", [&](driver&, context_object& mine) {
    if (now == nullptr) return status::invalid_value;
    *now = mine.of;
    return status::success;
  });
}

}  // namespace emulated_cuda

// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"

#include "injection.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace emulated_cuda {

namespace {

struct call_record {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<unsigned> delay{0};  // microseconds
  std::atomic<bool> armed{false};

  std::mutex guard;
  std::uint64_t fails_at = 0;
  status code = status::success;
  bool forever = false;

  status injected(std::uint64_t number) noexcept {
    const std::lock_guard held(guard);
    if (number == fails_at || (forever && number > fails_at)) return code;
    return status::success;
  }
};

std::array<call_record, entry_points.size()> records;

bool named(std::string_view symbol, std::string_view wanted) noexcept {
  if (symbol == wanted) return true;
  return symbol.ends_with("_v2") && symbol.substr(0, symbol.size() - 3) == wanted;
}

call_record* record_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < entry_points.size(); ++i) {
    if (named(entry_points[i].symbol, name)) return &records[i];
  }
  return nullptr;
}

}  // namespace

status begin_uninitialised(call which) noexcept {
  call_record& own = records[which.index];
  const auto number = own.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (const unsigned delay = own.delay.load(std::memory_order_relaxed); delay != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  }
  return own.armed.load(std::memory_order_acquire) ? own.injected(number) : status::success;
}

status begin(call which) noexcept {
  if (const status injected = begin_uninitialised(which); injected != status::success) return injected;
  return initialised() ? status::success : status::not_initialized;
}

std::uint64_t calls_of(std::string_view name) noexcept {
  const call_record* const own = record_of(name);
  return own == nullptr ? 0 : own->calls.load(std::memory_order_relaxed);
}

bool set_failure(std::string_view name, std::uint64_t nth, status code, bool forever) noexcept {
  call_record* const own = record_of(name);
  if (own == nullptr) return false;
  const std::lock_guard held(own->guard);
  own->fails_at = own->calls.load(std::memory_order_relaxed) + nth;
  own->code = code;
  own->forever = forever;
  own->armed.store(code != status::success, std::memory_order_release);
  return true;
}

bool set_delay(std::string_view name, unsigned microseconds) noexcept {
  call_record* const own = record_of(name);
  if (own == nullptr) return false;
  own->delay.store(microseconds, std::memory_order_relaxed);
  return true;
}

void forget_injection() noexcept {
  for (call_record& each : records) {
    const std::lock_guard held(each.guard);
    each.calls.store(0, std::memory_order_relaxed);
    each.delay.store(0, std::memory_order_relaxed);
    each.armed.store(false, std::memory_order_relaxed);
  }
}

__attribute__((constructor)) void set_injection_of_environment() noexcept {
  for_each_setting(variable("EMULATED_CUDA_DELAY"), [](std::string_view name, std::string_view value) {
    set_delay(name, static_cast<unsigned>(number_in(value)));
  });
  for_each_setting(variable("EMULATED_CUDA_FAIL"), [](std::string_view name, std::string_view value) {
    const auto colon = value.find(':');
    if (colon == std::string_view::npos) return;
    const auto code = static_cast<status>(number_in(value.substr(colon + 1)));
    set_failure(name, number_in(value), code, value.ends_with(":forever"));
  });
}

}  // namespace emulated_cuda

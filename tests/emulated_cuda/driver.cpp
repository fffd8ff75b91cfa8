// SPDX-License-Identifier: BSD-3-Clause
#include "driver.hpp"

#include "calls.hpp"

#include <atomic>
#include <pthread.h>
#include <sys/resource.h>

namespace emulated_cuda {

namespace {

enum class life : int { before, running, forked };
std::atomic<life> state{life::before};

void child_has_no_driver() noexcept {
  if (state.load(std::memory_order_relaxed) == life::running) state.store(life::forked, std::memory_order_relaxed);
}

/// Raises the limit on descriptors: each allocation here has one, unlike real device memory.
void allow_descriptors() noexcept {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur == now.rlim_max) return;
  now.rlim_cur = now.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &now);
}

std::uint64_t address_bytes(const settings& set) noexcept {
  constexpr std::uint64_t for_mappings = std::uint64_t{64} << 30;
  return for_mappings +
         2 * std::uint64_t{most_devices} * ((set.memory_bytes + granularity - 1) / granularity * granularity);
}

}  // namespace

driver::driver() : addresses(address_bytes(set)) {
  for (std::size_t i = 0; i < contexts.size(); ++i) contexts[i].of = static_cast<device>(i);
}

range* driver::find(device_pointer inside) noexcept {
  const auto after = ranges.upper_bound(inside);
  if (after == ranges.begin()) return nullptr;
  range& before = std::prev(after)->second;
  return inside < before.end() ? &before : nullptr;
}

const reservation* driver::find_reservation(device_pointer inside) const noexcept {
  const auto after = reservations.upper_bound(inside);
  if (after == reservations.begin()) return nullptr;
  const reservation& before = std::prev(after)->second;
  return inside - before.base < before.bytes ? &before : nullptr;
}

bool driver::charge(device from, std::uint64_t bytes) noexcept {
  std::uint64_t& used = used_bytes[static_cast<std::size_t>(from)];
  if (bytes > set.memory_bytes || used > set.memory_bytes - bytes) return false;
  used += bytes;
  return true;
}

driver& the_driver() {
  static driver* const one = new driver;
  return *one;
}

bool initialised() noexcept { return state.load(std::memory_order_acquire) == life::running; }

EMULATED_CUDA_EXPORT status cuInit(unsigned flags) noexcept try {
  if (const status early = begin_uninitialised("cuInit"); early != status::success) return early;
  if (flags != 0) return status::invalid_value;
  if (state.load(std::memory_order_acquire) == life::forked) return status::not_initialized;
  if (the_driver().set.devices == 0) return status::no_device;
  static const int once = (allow_descriptors(), ::pthread_atfork(nullptr, nullptr, child_has_no_driver));
  static_cast<void>(once);
  state.store(life::running, std::memory_order_release);
  return status::success;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

}  // namespace emulated_cuda

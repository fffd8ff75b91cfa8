// SPDX-License-Identifier: BSD-3-Clause
#include "copies.hpp"

#include "calls.hpp"
#include "work.hpp"

#include <algorithm>
#include <cstring>

namespace emulated_cuda {

namespace {

bool allows(access_rights has, access_rights wanted) noexcept {
  return (static_cast<int>(has) & static_cast<int>(wanted)) == static_cast<int>(wanted);
}

device_pointer address_of_host(const void* memory) noexcept { return reinterpret_cast<device_pointer>(memory); }

/// Runs a synchronous copy after all work that was given to the context's streams.
template <class Body>
status synchronous(call which, Body body) noexcept {
  context_object* mine = nullptr;
  const status early = reading_in_context(which, [&](driver&, context_object& found) {
    mine = &found;
    return status::success;
  });
  if (early != status::success) return early;
  finish_work_of(*mine);
  return body();
}

}  // namespace

bool accessible(driver& all, device_pointer at, std::uint64_t bytes, access_rights wanted) noexcept {
  if (!all.addresses.contains(at)) return at != 0 && !all.addresses.contains(at + bytes - 1);
  const device_pointer end = at + bytes;
  while (at < end) {
    const range* const found = all.find(at);
    if (found == nullptr || !allows(found->rights, wanted)) return false;
    at = std::min(end, found->end());
  }
  return true;
}

status copy(device_pointer to, device_pointer from, std::uint64_t bytes) noexcept {
  if (bytes == 0) return status::success;
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  if (!accessible(all, to, bytes, access_rights::read_write) || !accessible(all, from, bytes, access_rights::read)) {
    return status::invalid_value;
  }
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return status::success;
}

EMULATED_CUDA_EXPORT status cuMemcpyDtoH_v2(void* to, device_pointer from, std::size_t bytes) noexcept {
  return synchronous("cuMemcpyDtoH_v2", [&] { return copy(address_of_host(to), from, bytes); });
}

EMULATED_CUDA_EXPORT status cuMemcpyHtoD_v2(device_pointer to, const void* from, std::size_t bytes) noexcept {
  return synchronous("cuMemcpyHtoD_v2", [&] { return copy(to, address_of_host(from), bytes); });
}

EMULATED_CUDA_EXPORT status cuMemcpyDtoD_v2(device_pointer to, device_pointer from, std::size_t bytes) noexcept {
  return synchronous("cuMemcpyDtoD_v2", [&] { return copy(to, from, bytes); });
}

EMULATED_CUDA_EXPORT status cuMemsetD8_v2(device_pointer to, unsigned char value, std::size_t bytes) noexcept {
  return synchronous("cuMemsetD8_v2", [&] {
    driver& all = the_driver();
    const std::shared_lock held(all.guard);
    if (bytes != 0 && !accessible(all, to, bytes, access_rights::read_write)) return status::invalid_value;
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return status::success;
  });
}

}  // namespace emulated_cuda

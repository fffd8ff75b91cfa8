// SPDX-License-Identifier: BSD-3-Clause
#include "allocator.hpp"
#include "calls.hpp"
#include "work.hpp"

#include <vector>

namespace emulated_cuda {

EMULATED_CUDA_EXPORT status cuMemAlloc_v2(device_pointer* made, std::size_t bytes) noexcept {
  return changing_in_context("cuMemAlloc_v2", [&](driver& all, context_object& mine) {
    if (made == nullptr) return status::invalid_value;
    return allocate(all, {.context = &mine, .of = mine.of, .bytes = bytes}, made);
  });
}

EMULATED_CUDA_EXPORT status cuMemAllocManaged(device_pointer* made, std::size_t bytes, unsigned flags) noexcept {
  return changing_in_context("cuMemAllocManaged", [&](driver& all, context_object& mine) {
    if (made == nullptr || (flags != attach_global && flags != attach_host)) return status::invalid_value;
    return allocate(all, {.from = origin::managed, .context = &mine, .of = mine.of, .bytes = bytes}, made);
  });
}

EMULATED_CUDA_EXPORT status cuMemFree_v2(device_pointer freed) noexcept try {
  context_object* mine = nullptr;
  const status early = reading_in_context("cuMemFree_v2", [&](driver&, context_object& found) {
    mine = &found;
    return status::success;
  });
  if (early != status::success || freed == 0) return early;
  finish_work_of(*mine);
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  return free_any(all, freed);
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

EMULATED_CUDA_EXPORT status cuMemGetInfo_v2(std::size_t* free, std::size_t* total) noexcept {
  return reading_in_context("cuMemGetInfo_v2", [&](driver& all, context_object& mine) {
    if (free == nullptr || total == nullptr) return status::invalid_value;
    *total = all.set.memory_bytes;
    *free = all.set.memory_bytes - all.used_bytes[static_cast<std::size_t>(mine.of)];
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemGetAddressRange_v2(device_pointer* base, std::size_t* bytes,
                                                    device_pointer inside) noexcept {
  return reading_in_context("cuMemGetAddressRange_v2", [&](driver& all, context_object&) {
    const range* const found = all.find(inside);
    if (found == nullptr || is_host(found->from)) return status::not_found;
    if (base != nullptr) *base = found->base;
    if (bytes != nullptr) *bytes = found->bytes;
    return status::success;
  });
}

status free_any(driver& all, device_pointer base) {
  const auto found = all.ranges.find(base);
  if (found == all.ranges.end()) return status::invalid_value;
  if (found->second.from == origin::pool_opened) {
    all.addresses.give_back(found->second.mapping);
    all.ranges.erase(found);
    return status::success;
  }
  if (!is_allocation(found->second)) return status::invalid_value;
  free_memory(all, base);
  return status::success;
}

void destroy_memory_of(driver& all, const context_object& context) {
  std::vector<device_pointer> gone;
  for (const auto& [base, each] : all.ranges) {
    if (each.context == &context && (is_allocation(each) || each.from == origin::pool_opened)) gone.push_back(base);
  }
  for (const device_pointer each : gone) free_any(all, each);
}

}  // namespace emulated_cuda

// SPDX-License-Identifier: BSD-3-Clause
#include "allocator.hpp"
#include "calls.hpp"
#include "injection.hpp"
#include "ipc.hpp"

#include <mutex>

namespace emulated_cuda {

EMULATED_CUDA_EXPORT void emulated_cuda_reset() noexcept {
  forget_injection();
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  const settings plain;
  all.set.rule = plain.rule;
  all.set.freed = plain.freed;
  all.set.max_mappings = plain.max_mappings;
  all.set.stream_delay = plain.stream_delay;
  forget_import_counts();
}

EMULATED_CUDA_EXPORT void emulated_cuda_read_counters(counters* into) noexcept {
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  count_imports(all, *into);
  for (const auto& [base, each] : all.ranges) {
    into->allocations += is_allocation(each) ? 1 : 0;
    into->host_registrations += each.from == origin::registered ? 1 : 0;
  }
}

EMULATED_CUDA_EXPORT std::uint64_t emulated_cuda_calls(const char* entry_point) noexcept {
  return calls_of(entry_point);
}

EMULATED_CUDA_EXPORT bool emulated_cuda_fail(const char* entry_point, std::uint64_t nth, int code,
                                             bool forever) noexcept {
  return set_failure(entry_point, nth, static_cast<status>(code), forever);
}

EMULATED_CUDA_EXPORT bool emulated_cuda_delay(const char* entry_point, unsigned microseconds) noexcept {
  return set_delay(entry_point, microseconds);
}

EMULATED_CUDA_EXPORT void emulated_cuda_stream_delay(unsigned microseconds) noexcept {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  all.set.stream_delay = microseconds;
}

EMULATED_CUDA_EXPORT void emulated_cuda_max_mappings(std::uint64_t most) noexcept {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  all.set.max_mappings = most;
}

EMULATED_CUDA_EXPORT void emulated_cuda_set_second_open(second_open rule) noexcept {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  all.set.rule = rule;
}

EMULATED_CUDA_EXPORT void emulated_cuda_set_freed(int code) noexcept {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  all.set.freed = static_cast<status>(code);
}

}  // namespace emulated_cuda

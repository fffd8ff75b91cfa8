// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/pointer.hpp"

#include <array>

namespace pinfold::cuda {

namespace {

constexpr auto unknown = "CUDA does not know this memory";

/// Narrows the range: the attributes may describe a reservation that contains several allocations.
void narrow_down(const driver_table& calls, device_pointer pointer, memory_facts& facts) noexcept {
  device_pointer base = 0;
  std::size_t size = 0;
  if (calls.mem_get_address_range(&base, &size, pointer) != status::success) return;  // the call may need a context
  facts.base = base;
  facts.size = size;
}

/// Queries all attributes at once, or one by one if the driver accepts some of them only that way.
template <std::size_t N>
status query_attributes(const driver_table& calls, device_pointer pointer, std::array<pointer_attribute, N>& wanted,
                        std::array<void*, N>& values) noexcept {
  const auto together = calls.pointer_get_attributes(N, wanted.data(), values.data(), pointer);
  if (together != status::invalid_value && together != status::not_supported) return together;
  for (std::size_t i = 0; i < N; ++i)
    if (const auto one = calls.pointer_get_attribute(values[i], wanted[i], pointer); one != status::success) return one;
  return status::success;
}

}  // namespace

result<memory_facts> facts_of(const driver_table& calls, device_pointer pointer) noexcept {
  memory_facts facts{};
  unsigned managed = 0;
  int legacy = 0;
  std::array wanted{pointer_attribute::memory_type,
                    pointer_attribute::buffer_id,
                    pointer_attribute::is_managed,
                    pointer_attribute::is_legacy_cuda_ipc_capable,
                    pointer_attribute::allowed_handle_types,
                    pointer_attribute::mempool_handle,
                    pointer_attribute::device_ordinal,
                    pointer_attribute::range_start_addr,
                    pointer_attribute::range_size};
  std::array<void*, wanted.size()> values{&facts.type,   &facts.buffer_id,    &managed,
                                          &legacy,       &facts.handle_types, static_cast<void*>(&facts.pool),
                                          &facts.device, &facts.base,         &facts.size};
  const auto answer = query_attributes(calls, pointer, wanted, values);
  if (answer != status::success) return fail_cuda(answer, unknown, errc::invalid_argument);
  if (facts.type == memory_type{} || facts.size == 0) return fail(errc::invalid_argument, unknown);
  facts.managed = managed != 0;
  facts.legacy_capable = legacy != 0;
  if (!facts.is_mapped_by_application()) narrow_down(calls, pointer, facts);
  return facts;
}

result<segment_facts> segment_at(const driver_table& calls, device_pointer pointer) noexcept {
  segment_facts facts{};
  int mapped = 0;
  std::array wanted{pointer_attribute::mapped, pointer_attribute::mapping_base_addr, pointer_attribute::mapping_size,
                    pointer_attribute::memory_block_id};
  std::array<void*, wanted.size()> values{&mapped, &facts.base, &facts.size, &facts.block_id};
  const auto answer = query_attributes(calls, pointer, wanted, values);
  if (answer != status::success) return fail_cuda(answer, "no segment is mapped at this address", errc::invalid_range);
  if (mapped == 0 || facts.size == 0 || facts.base > pointer)
    return fail(errc::invalid_range, "no segment is mapped at this address");
  return facts;
}

}  // namespace pinfold::cuda

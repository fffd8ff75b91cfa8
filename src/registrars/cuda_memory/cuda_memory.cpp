// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/cuda_memory.hpp>

#include "cuda/pointer.hpp"

#include <array>
#include <cerrno>
#include <new>

namespace pinfold {

using cuda::pointer_attribute;
using cuda::status;

namespace {

constexpr auto several = "the range spans several allocations: register each separately";

result<cuda_identity> identity_of_segment(const cuda::driver_table& calls, range memory) noexcept {
  const auto segment = cuda::segment_at(calls, memory.begin);
  if (!segment) return tl::unexpected(segment.error());
  if (memory.end > segment->base + segment->size) return fail(errc::invalid_range, several);
  return cuda_identity{segment->block_id, segment->base};
}

result<cuda::memory_facts> facts_of_device_memory(const cuda::driver_table& calls, std::uintptr_t at) noexcept {
  auto facts = cuda::facts_of(calls, at);
  if (!facts) return facts;
  if (facts->managed) return fail(errc::unsupported, "managed memory is unsupported: it moves between host and device");
  if (facts->type != cuda::memory_type::device_memory)
    return fail(errc::unsupported, "host memory: use a cache without cuda_memory");
  return facts;
}

/// Returns the allocation or segment that contains the address.
result<range> segment_around(const cuda::driver_table& calls, std::uintptr_t at) noexcept {
  const auto facts = facts_of_device_memory(calls, at);
  if (!facts) return tl::unexpected(facts.error());
  if (!facts->is_mapped_by_application()) return range{facts->base, facts->base + facts->size};
  const auto segment = cuda::segment_at(calls, at);
  if (!segment) return tl::unexpected(segment.error());
  return range{segment->base, segment->base + segment->size};
}

}  // namespace

result<std::vector<range>> segments_of_cuda_memory(range memory) noexcept try {
  if (memory.empty()) return fail(errc::invalid_range, "the range is empty");
  const auto there = cuda::driver();
  if (!there) return tl::unexpected(there.error());
  std::vector<range> all;
  for (auto at = memory.begin; at < memory.end; at = all.back().end) {
    const auto one = segment_around(**there, at);
    if (!one && one.error() == errc::invalid_argument && !all.empty())
      return fail(errc::invalid_range, "a part of the range has no memory");
    if (!one) return tl::unexpected(one.error());
    if (one->end <= at) return fail(errc::invalid_range, "a part of the range has no memory");
    all.push_back(*one);
  }
  return all;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the list of segments");
}

result<cuda_identity> identify_cuda_memory(range memory) noexcept {
  const auto there = cuda::driver();
  if (!there) return tl::unexpected(there.error());
  const auto facts = facts_of_device_memory(**there, memory.begin);
  if (!facts) return tl::unexpected(facts.error());
  if (facts->is_mapped_by_application()) return identity_of_segment(**there, memory);
  if (memory.end > facts->base + facts->size) return fail(errc::invalid_range, several);
  return cuda_identity{facts->buffer_id, 0};
}

bool is_cuda_memory(const cuda_identity& expected, range memory) noexcept {
  const auto there = cuda::driver();
  if (!there) return false;
  unsigned long long id = 0;
  if (expected.base == 0) {
    const auto answer = (*there)->pointer_get_attribute(&id, pointer_attribute::buffer_id, memory.begin);
    return answer == status::success && id == expected.id;
  }
  const auto segment = cuda::segment_at(**there, memory.begin);
  return segment && cuda_identity{segment->block_id, segment->base} == expected;
}

}  // namespace pinfold

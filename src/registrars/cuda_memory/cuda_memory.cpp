// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/cuda_memory.hpp>

#include "cuda/pointer.hpp"

#include <array>

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

}  // namespace

result<cuda_identity> identify_cuda_memory(range memory) noexcept {
  const auto there = cuda::driver();
  if (!there) return tl::unexpected(there.error());
  const auto facts = cuda::facts_of(**there, memory.begin);
  if (!facts) return tl::unexpected(facts.error());
  if (facts->managed) return fail(errc::unsupported, "managed memory is unsupported: it moves between host and device");
  if (facts->type != cuda::memory_type::device_memory)
    return fail(errc::unsupported, "host memory: use a cache without cuda_memory");
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

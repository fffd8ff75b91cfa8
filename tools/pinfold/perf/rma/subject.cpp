// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/subject.hpp"

#include "cli/failure.hpp"
#include "perf/remappable_memory.hpp"

#include <utility>

namespace tool {

std::unique_ptr<rma_subject> make_rma_subject(const std::string& name, const fabric_end& end,
                                              const rma_buffers& buffers, const pinfold::cache_options& cache) {
  using registrar = pinfold::libfabric_registrar;
  constexpr std::size_t alignment = 64;
  if (name == "pool") {
    auto made =
        std::make_unique<pooled_buffers<registrar>>(fabric_cache(end.registrar(), cache), pinfold::page_kind::plain);
    need(made->allocate(buffers.count, buffers.size, alignment), "the pool");
    return made;
  }
  remappable_memory memory(buffers.count * buffers.size);
  if (name == "per-transfer")
    return std::make_unique<buffers_registered_each_time<registrar, remappable_memory>>(std::move(memory), buffers.size,
                                                                                        end.registrar());
  return std::make_unique<cached_buffers<registrar, remappable_memory>>(std::move(memory), buffers.size,
                                                                        fabric_cache(end.registrar(), cache));
}

}  // namespace tool

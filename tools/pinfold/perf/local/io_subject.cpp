// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/io_subject.hpp"

#include "perf/local/paged_memory.hpp"

#include <utility>

namespace tool {
namespace {

using registrar = pinfold::io_uring_registrar;

constexpr std::size_t alignment = 4096;  // O_DIRECT needs this

pinfold::result<std::unique_ptr<io_subject>> make_pooled(uring& ring, const io_buffers& buffers) {
  auto made = std::make_unique<pooled_buffers<registrar>>(ring.cache(buffers.cache), buffers.pages);
  if (auto done = made->allocate(buffers.count, buffers.size, alignment); !done) return tl::unexpected(done.error());
  return made;
}

}  // namespace

pinfold::result<std::unique_ptr<io_subject>> make_io_subject(std::string_view name, uring& ring,
                                                             const io_buffers& buffers) {
  if (name == "pool") return make_pooled(ring, buffers);
  auto memory = paged_memory::map(buffers.count * buffers.size, buffers.pages);
  if (!memory) return tl::unexpected(memory.error());
  if (name == "unregistered")
    return std::make_unique<unregistered_buffers<registrar, paged_memory>>(std::move(*memory), buffers.size);
  if (name == "pinfold")
    return std::make_unique<cached_buffers<registrar, paged_memory>>(std::move(*memory), buffers.size,
                                                                     ring.cache(buffers.cache));
  return ring.registrar().map([&](auto made) -> std::unique_ptr<io_subject> {
    return std::make_unique<buffers_registered_each_time<registrar, paged_memory>>(std::move(*memory), buffers.size,
                                                                                   std::move(made));
  });
}

}  // namespace tool

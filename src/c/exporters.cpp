// SPDX-License-Identifier: BSD-3-Clause
#include "c/exporters.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/segments.h>

namespace {

using namespace pinfold;

static_assert(sizeof(memfd_handle) == PINFOLD_MEMFD_HANDLE_BYTES &&
              sizeof(cuda_ipc_handle) == PINFOLD_CUDA_HANDLE_BYTES);

}  // namespace

namespace pinfold::c {

result<memfd_exporter_options> memfd_options_of(std::uint32_t flags) noexcept {
  if ((flags & ~std::uint32_t{PINFOLD_MEMFD_PEERS_WRITE | PINFOLD_MEMFD_SERVE}) != 0)
    return fail(errc::invalid_argument, "the exporter's flags have unknown bits");
  return memfd_exporter_options{
      .access = (flags & PINFOLD_MEMFD_PEERS_WRITE) != 0 ? memfd_access::read_write : memfd_access::read_only,
      .serve = (flags & PINFOLD_MEMFD_SERVE) != 0,
  };
}

}  // namespace pinfold::c

extern "C" {

int pinfold_memfd_exporter_create(uint32_t flags, pinfold_memfd_exporter** exporter) {
  return c::create_object(exporter, [&]() -> result<memfd_exporter> {
    const auto how = c::memfd_options_of(flags);
    if (!how) return tl::unexpected(how.error());
    return memfd_exporter::create(*how);
  });
}

void pinfold_memfd_exporter_destroy(pinfold_memfd_exporter* exporter) { delete exporter; }

int pinfold_memfd_allocate(pinfold_memfd_exporter* exporter, size_t bytes, pinfold_memfd_buffer** buffer) {
  return c::create_object(buffer, [&]() -> result<memfd_buffer> {
    if (exporter == nullptr) return fail(errc::invalid_argument, "the exporter is null");
    return exporter->of.allocate(bytes);
  });
}

void* pinfold_memfd_data(const pinfold_memfd_buffer* buffer) { return buffer == nullptr ? nullptr : buffer->of.data(); }
size_t pinfold_memfd_size(const pinfold_memfd_buffer* buffer) { return buffer == nullptr ? 0 : buffer->of.size(); }

int pinfold_memfd_handle(const pinfold_memfd_buffer* buffer, void* handle, size_t handle_bytes) {
  if (buffer == nullptr) return c::refuse(errc::invalid_argument, "the buffer is null");
  return c::copy_handle(buffer->of.handle(), handle, handle_bytes);
}

void pinfold_memfd_free(pinfold_memfd_buffer* buffer) { delete buffer; }

int pinfold_cuda_exporter_create(pinfold_cuda_exporter** exporter) {
  return c::create_object(exporter, [] { return cuda_ipc_exporter::create(); });
}

void pinfold_cuda_exporter_destroy(pinfold_cuda_exporter* exporter) { delete exporter; }

int pinfold_cuda_share(pinfold_cuda_exporter* exporter, uint64_t pointer, size_t bytes, void* handle,
                       size_t handle_bytes) {
  if (exporter == nullptr) return c::refuse(errc::invalid_argument, "the exporter is null");
  const auto shared = exporter->of.share(pointer, bytes);
  return shared ? c::copy_handle(shared->handle, handle, handle_bytes) : c::refuse(shared.error());
}

int pinfold_cuda_share_segments(pinfold_cuda_exporter* exporter, uint64_t pointer, size_t bytes, void* handles,
                                size_t handle_bytes, size_t room, size_t* count) {
  const auto place = c::has_place(handles, handle_bytes == sizeof(cuda_ipc_handle), room, count);
  if (!place) return c::refuse(place.error());
  if (exporter == nullptr) return c::refuse(errc::invalid_argument, "the exporter is null");
  const auto shared = exporter->of.share_segments(pointer, bytes);
  if (!shared) return c::refuse(shared.error());
  return c::copy_handles(
      *shared, [](const cuda_shared& one) -> const auto& { return one.handle; }, handles, room, count);
}

}  // extern "C"

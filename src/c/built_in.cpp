// SPDX-License-Identifier: BSD-3-Clause
#include "c/built_in.hpp"

#include "c/releasing.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/registrars/cuda_host.hpp>
#include <pinfold/registrars/io_uring.hpp>
#include <pinfold/registrars/mlock.hpp>
#include <pinfold/release.h>
#include <pinfold/release_carried.h>

#include <cstddef>

namespace {

template <class Ours, class Theirs>
constexpr bool same_layout = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

using in_host = pinfold::cuda_host_registrar::registration_type;
static_assert(offsetof(pinfold_cuda_host_registration, device_address) == offsetof(in_host, device_address) &&
              offsetof(pinfold_cuda_host_registration, number) == offsetof(in_host, number));
static_assert(same_layout<pinfold_io_uring_registration, pinfold::io_uring_registrar::registration_type> &&
              same_layout<pinfold_cuda_host_registration, pinfold::cuda_host_registrar::registration_type>);

constexpr std::uint32_t memfd_flags = PINFOLD_MEMFD_READ_WRITE | PINFOLD_MEMFD_UNSEALED | PINFOLD_MEMFD_POPULATE;

pinfold::memfd_importer memfd_importer_of(std::uint32_t flags) {
  using namespace pinfold;
  return memfd_importer({
      .access = (flags & PINFOLD_MEMFD_READ_WRITE) != 0 ? memfd_access::read_write : memfd_access::read_only,
      .require_seals = (flags & PINFOLD_MEMFD_UNSEALED) == 0,
      .populate = (flags & PINFOLD_MEMFD_POPULATE) != 0,
  });
}

int refuse_flags(pinfold_cache** cache) noexcept {
  if (cache != nullptr) *cache = nullptr;
  return pinfold::c::refuse(pinfold::errc::invalid_argument, "the importer's flags have unknown bits");
}

int refuse_device(pinfold_cache** cache) noexcept {
  if (cache != nullptr) *cache = nullptr;
  return pinfold::c::refuse(pinfold::errc::invalid_argument, "the numbers of CUDA devices begin with 0");
}

}  // namespace

extern "C" {

int pinfold_create_mlock(const pinfold_options* options, pinfold_cache** cache) {
  return pinfold::c::create_local(options, cache,
                                  [] { return pinfold::result<pinfold::mlock_registrar>(pinfold::mlock_registrar()); });
}

int pinfold_create_io_uring(struct io_uring* ring, unsigned slots, const pinfold_options* options,
                            pinfold_cache** cache) {
  pinfold::io_uring_registrar_options how;
  if (slots != 0) how.slots = slots;
  return pinfold::c::create_local(options, cache, [&] { return pinfold::io_uring_registrar::create(ring, how); });
}

int pinfold_create_cuda_host(int device, const pinfold_options* options, pinfold_cache** cache) {
  if (device < 0) return refuse_device(cache);
  return pinfold::c::create_local(options, cache, [&] {
    return pinfold::result<pinfold::cuda_host_registrar>(pinfold::cuda_host_registrar({.device = device}));
  });
}

int pinfold_create_memfd(uint32_t flags, const pinfold_options* options, pinfold_cache** cache) {
  if ((flags & ~memfd_flags) != 0) return refuse_flags(cache);
  return pinfold::c::create_import(options, cache, [flags] { return memfd_importer_of(flags); });
}

int pinfold_create_memfd_releasing(uint32_t flags, const pinfold_options* options, pinfold_cache** cache) {
  if ((flags & ~memfd_flags) != 0) return refuse_flags(cache);
  return pinfold::c::create_releasing(options, cache, [flags] { return memfd_importer_of(flags); });
}

int pinfold_create_memfd_carried(pinfold_release_listener* listener, uint32_t flags, const pinfold_options* options,
                                 pinfold_cache** cache) {
  if ((flags & ~memfd_flags) != 0) return refuse_flags(cache);
  return pinfold::c::create_carried(listener, options, cache, [flags] { return memfd_importer_of(flags); });
}

int pinfold_create_cuda_ipc(int device, const pinfold_options* options, pinfold_cache** cache) {
  if (device < 0) return refuse_device(cache);
  return pinfold::c::create_import(options, cache, [&] { return pinfold::cuda_ipc_importer({.device = device}); });
}

int pinfold_create_cuda_ipc_releasing(int device, const pinfold_options* options, pinfold_cache** cache) {
  if (device < 0) return refuse_device(cache);
  return pinfold::c::create_releasing(options, cache, [&] { return pinfold::cuda_ipc_importer({.device = device}); });
}

int pinfold_create_cuda_ipc_carried(pinfold_release_listener* listener, int device, const pinfold_options* options,
                                    pinfold_cache** cache) {
  if (device < 0) return refuse_device(cache);
  return pinfold::c::create_carried(listener, options, cache,
                                    [&] { return pinfold::cuda_ipc_importer({.device = device}); });
}

}  // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exporters of the C interface, and how its functions make objects.
#pragma once

#include "c/failure.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

struct pinfold_memfd_exporter {
  pinfold::memfd_exporter of;
};
struct pinfold_memfd_buffer {
  pinfold::memfd_buffer of;
};
struct pinfold_cuda_exporter {
  pinfold::cuda_ipc_exporter of;
};

namespace pinfold::c {

/// Returns the options that the PINFOLD_MEMFD_ bits of an exporter mean.
[[nodiscard]] result<memfd_exporter_options> memfd_options_of(std::uint32_t flags) noexcept;

/// Stores what `make` returns in a new object at `*to`.
template <class Object, class Make>
[[nodiscard]] int create_object(Object** to, Make&& make) noexcept {
  if (to == nullptr) return refuse(errc::invalid_argument, "there is no place for the object");
  *to = nullptr;
  return guarded([&]() -> result<void> {
    auto made = make();
    if (!made) return tl::unexpected(made.error());
    *to = new Object{*std::move(made)};  // NOLINT(bugprone-unhandled-exception-at-new): `guarded` catches it
    return {};
  });
}

/// Copies a handle to `room` bytes of the caller's.
template <class Handle>
[[nodiscard]] int copy_handle(const Handle& from, void* to, std::size_t room) noexcept {
  if (to == nullptr || room != sizeof from)
    return refuse(errc::invalid_argument, "the place for the handle is null, or of another length");
  std::memcpy(to, &from, sizeof from);
  return PINFOLD_OK;
}

}  // namespace pinfold::c

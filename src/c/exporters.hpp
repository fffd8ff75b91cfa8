// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exporters of the C interface, and functions that make its objects.
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

/// Returns the options for the PINFOLD_MEMFD_ bits of an exporter.
[[nodiscard]] result<memfd_exporter_options> memfd_options_of(std::uint32_t flags) noexcept;

/// Stores the result of `make` in a new object at `*to`.
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

/// Copies a handle to `room` bytes of the caller.
template <class Handle>
[[nodiscard]] int copy_handle(const Handle& from, void* to, std::size_t room) noexcept {
  if (to == nullptr || room != sizeof from)
    return refuse(errc::invalid_argument, "the place for the handle is null, or of another length");
  std::memcpy(to, &from, sizeof from);
  return PINFOLD_OK;
}

/// Copies as many handles as the caller has room for, and their number. `handle_of` returns the handle in one of the
/// `items`.
template <class Items, class HandleOf>
[[nodiscard]] int copy_handles(const Items& items, HandleOf&& handle_of, void* to, std::size_t room,
                               std::size_t* count) noexcept {
  std::size_t number = 0;
  for (const auto& one : items) {
    const auto& from = handle_of(one);
    if (number < room) std::memcpy(static_cast<std::byte*>(to) + number * sizeof from, &from, sizeof from);
    ++number;
  }
  *count = number;
  return PINFOLD_OK;
}

/// Returns why handles cannot be copied there; sets `*count` to 0.
[[nodiscard]] inline result<void> has_place(const void* to, bool right_length, std::size_t room,
                                            std::size_t* count) noexcept {
  if (count == nullptr || (to == nullptr && room != 0) || !right_length)
    return fail(errc::invalid_argument, "the place for the handles, or their number, is null, or of another length");
  *count = 0;
  return {};
}

}  // namespace pinfold::c

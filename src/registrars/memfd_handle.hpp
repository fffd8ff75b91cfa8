// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How a memfd handle is put together and recognised.
///
/// The checksum finds damage, such as bytes lost on the way or a handle of something else. It is no protection against
/// people: who may open a buffer is decided by the kernel, when the descriptor is fetched.
#pragma once

#include <pinfold/registrars/memfd.hpp>

#include "exchange/checksum.hpp"
#include "exchange/origin.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pinfold::memfd {

/// The letters PFMEMFD and the version of the layout.
inline constexpr std::uint64_t handle_magic = 0x5046'4d45'4d46'4401;

static_assert(sizeof(memfd_handle) == 72 && std::has_unique_object_representations_v<memfd_handle>);
static_assert(offsetof(memfd_handle, check) == sizeof(memfd_handle) - sizeof(memfd_handle::check));

/// What `handle.check` has to be.
[[nodiscard]] inline std::uint32_t checksum_of(const memfd_handle& handle) noexcept {
  return exchange::crc32c(std::as_bytes(std::span(&handle, 1)).first(offsetof(memfd_handle, check)));
}

/// What is to be fetched for the handle.
[[nodiscard]] inline exchange::wanted behind(const memfd_handle& handle) noexcept {
  return {{handle.exporter, handle.start_time, handle.pid}, handle.serial, handle.descriptor};
}

/// The handle with magic and checksum filled in.
[[nodiscard]] inline memfd_handle completed(memfd_handle handle) noexcept {
  handle.magic = handle_magic;
  handle.check = checksum_of(handle);
  return handle;
}

/// Bytes of a page on this host.
[[nodiscard]] std::size_t page_bytes() noexcept;

/// The allocation that the handle stands for; `invalid_handle` when it cannot be one of ours. No system call.
[[nodiscard]] result<range> checked(const memfd_handle& handle) noexcept;

}  // namespace pinfold::memfd

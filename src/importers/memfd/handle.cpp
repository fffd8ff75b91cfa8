// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/handle.hpp"

#include "os/page_bytes.hpp"

namespace pinfold::memfd {

namespace {

bool possible_range(const memfd_handle& handle) noexcept {
  const std::uint64_t page = os::page_bytes();
  return handle.size != 0 && handle.size % page == 0 && handle.base != 0 && handle.base % page == 0 &&
         handle.size <= UINT64_MAX - handle.base;
}

bool possible_origin(const memfd_handle& handle) noexcept {
  return handle.exporter != 0 && handle.serial != 0 && handle.pid > 0 && handle.descriptor >= 0 && handle.inode != 0 &&
         handle.access <= static_cast<std::uint16_t>(memfd_access::read_write) &&
         (handle.host == 0 || fd_passing::version_of(handle) > 1);
}

}  // namespace

result<range> checked(const memfd_handle& handle) noexcept {
  if (!fd_passing::is_kind(handle, handle_magic)) return fail(errc::invalid_handle, "not a memfd handle");
  if (!fd_passing::is_known(handle, handle_magic))
    return fail(errc::invalid_handle, "the memfd handle has the layout of a newer release");
  if (handle.check != checksum_of(handle)) return fail(errc::invalid_handle, "the memfd handle is damaged");
  if (!possible_range(handle) || !possible_origin(handle)) {
    return fail(errc::invalid_handle, "the memfd handle has impossible contents");
  }
  return handle.allocation();
}

}  // namespace pinfold::memfd

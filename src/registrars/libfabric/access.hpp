// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/access.hpp>

#include <cstdint>
#include <rdma/fabric.h>

namespace pinfold::libfabric {

// fi_mr(3), "access". FI_READ is for the data of an RMA read: "from the viewpoint of the application, the memory buffer
// is being written into by the network". A fetching atomic needs both remote flags.
[[nodiscard]] constexpr std::uint64_t access_flags(access_flags wanted) noexcept {
  std::uint64_t flags = 0;
  if (contains_all(wanted, access_flags::local_read)) flags |= FI_SEND | FI_WRITE;
  if (contains_all(wanted, access_flags::local_write)) flags |= FI_RECV | FI_READ;
  if (contains_all(wanted, access_flags::remote_read)) flags |= FI_REMOTE_READ;
  if (contains_all(wanted, access_flags::remote_write)) flags |= FI_REMOTE_WRITE;
  if (contains_all(wanted, access_flags::remote_atomic)) flags |= FI_REMOTE_READ | FI_REMOTE_WRITE;
  return flags;
}

}  // namespace pinfold::libfabric

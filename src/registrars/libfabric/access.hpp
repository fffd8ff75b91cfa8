// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/rights.hpp>

#include <cstdint>
#include <rdma/fabric.h>

namespace pinfold::libfabric {

// fi_mr(3), "access". FI_READ is for the data of an RMA read: "from the viewpoint of the application, the memory buffer
// is being written into by the network". A fetching atomic needs both remote flags.
[[nodiscard]] constexpr std::uint64_t access_flags(rights wanted) noexcept {
  std::uint64_t flags = 0;
  if (includes(wanted, rights::local_read)) flags |= FI_SEND | FI_WRITE;
  if (includes(wanted, rights::local_write)) flags |= FI_RECV | FI_READ;
  if (includes(wanted, rights::remote_read)) flags |= FI_REMOTE_READ;
  if (includes(wanted, rights::remote_write)) flags |= FI_REMOTE_WRITE;
  if (includes(wanted, rights::remote_atomic)) flags |= FI_REMOTE_READ | FI_REMOTE_WRITE;
  return flags;
}

}  // namespace pinfold::libfabric

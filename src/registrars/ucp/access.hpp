// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/access.hpp>

#include <ucp/api/ucp.h>

namespace pinfold::ucp {

// Returns the flags of ucp_mem_map. Atomic operations of peers have no flag of their own.
[[nodiscard]] constexpr unsigned protection(access_flags wanted) noexcept {
  unsigned flags = 0;
  if (contains_all(wanted, access_flags::local_read)) flags |= UCP_MEM_MAP_PROT_LOCAL_READ;
  if (contains_all(wanted, access_flags::local_write)) flags |= UCP_MEM_MAP_PROT_LOCAL_WRITE;
  const bool atomic = contains_all(wanted, access_flags::remote_atomic);
  if (atomic || contains_all(wanted, access_flags::remote_read)) flags |= UCP_MEM_MAP_PROT_REMOTE_READ;
  if (atomic || contains_all(wanted, access_flags::remote_write)) flags |= UCP_MEM_MAP_PROT_REMOTE_WRITE;
  return flags;
}

}  // namespace pinfold::ucp

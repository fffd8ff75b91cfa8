// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pinfold/access.hpp>

#include <infiniband/verbs.h>

namespace pinfold::verbs {

// ibv_reg_mr(3): "If IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC is set, then IBV_ACCESS_LOCAL_WRITE must be
// set too." Local reads are always allowed.
[[nodiscard]] constexpr unsigned access_flags(access_flags wanted) noexcept {
  unsigned flags = 0;
  if (contains_all(wanted, access_flags::local_write)) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (contains_all(wanted, access_flags::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
  if (contains_all(wanted, access_flags::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if (contains_all(wanted, access_flags::remote_atomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
  return flags;
}

}  // namespace pinfold::verbs

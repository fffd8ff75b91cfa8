// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Limits of the system: RLIMIT_MEMLOCK, and memory.max of cgroups.
#pragma once

#include <cstddef>

namespace pinfold::node {

/// A limit in bytes, and how much of it is used. `max` is `unlimited` where there is no limit.
struct system_limit {
  std::size_t max;
  std::size_t used;
  std::size_t least_max = max;  ///< of several limits, of which `max` is the one with the least room
};

/// Returns RLIMIT_MEMLOCK, which does not limit a process with CAP_IPC_LOCK, and the memory locked or pinned.
[[nodiscard]] system_limit memlock_limit() noexcept;

/// Returns the memory.max with the least room among this process's cgroup and those above it (cgroup version 2).
[[nodiscard]] system_limit cgroup_limit() noexcept;

}  // namespace pinfold::node

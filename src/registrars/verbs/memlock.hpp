// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace pinfold::verbs {

/// Returns whether `bytes` more pinned bytes would exceed RLIMIT_MEMLOCK, by the kernel's own count for this process
/// (VmPin in proc(5)). False for a process with CAP_IPC_LOCK, or if /proc does not give the count. Does not allocate.
[[nodiscard]] bool exceeds_memlock(std::size_t bytes) noexcept;

}  // namespace pinfold::verbs

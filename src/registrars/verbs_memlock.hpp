// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace pinfold::verbs {

/// Whether so many more pinned bytes would exceed RLIMIT_MEMLOCK, by the kernel's own count of this process (VmPin in
/// proc(5)); false for who has CAP_IPC_LOCK, and where /proc does not say. Does not allocate.
[[nodiscard]] bool exceeds_memlock(std::size_t bytes) noexcept;

}  // namespace pinfold::verbs

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Hints the allocator to keep freed memory, so that fewer registrations are invalidated (R34).
#pragma once

#include <memory>

namespace pinfold::monitors {

/// Sets `mallopt` (M_MMAP_MAX 0, M_TRIM_THRESHOLD -1) while any result of this function lives; then glibc's defaults.
/// `mallopt` also returns success under allocators that ignore it, so this tests the allocator and returns null if a
/// large freed block is unmapped nevertheless. A hint only: thread stacks and arenas are still unmapped, and a monitor
/// must see that.
///
/// For any thread. After the hint, glibc never adapts its thresholds again.
[[nodiscard]] std::shared_ptr<void> hint_allocator();

}  // namespace pinfold::monitors

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Asks the allocator to keep freed memory, so that fewer registrations go (R34).
#pragma once

#include <memory>

namespace pinfold::monitors {

/// Sets `mallopt` (M_MMAP_MAX 0, M_TRIM_THRESHOLD -1) while any result of this function lives; then glibc's defaults.
/// `mallopt` also returns success under allocators that ignore it, so this tests the allocator and returns null when a
/// large freed block goes away nevertheless. A hint only: thread stacks and arenas go as before, and a monitor has to
/// see that.
///
/// For any thread. Once hinted, glibc no longer adapts its thresholds, not even afterwards.
[[nodiscard]] std::shared_ptr<void> hint_allocator();

}  // namespace pinfold::monitors

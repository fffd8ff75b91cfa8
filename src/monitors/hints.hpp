// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Asking the allocator to keep what is freed, so that fewer registrations go (R34).
#pragma once

#include <memory>

namespace pinfold::monitors {

/// `mallopt` (M_MMAP_MAX 0, M_TRIM_THRESHOLD -1) for as long as somebody has one of these; then glibc's defaults. Its
/// return value says nothing: it is success under allocators that know nothing of it. So the allocator is put to the
/// test: null when a large block that is freed goes away nevertheless. A hint only: thread stacks and arenas go as
/// before, and it is for a monitor to see that.
///
/// Any thread. Once taken, glibc does not adapt its thresholds any more, also afterwards.
[[nodiscard]] std::shared_ptr<void> hint_allocator();

}  // namespace pinfold::monitors

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Internal. A few steps at the same time.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>

namespace pinfold::detail {

/// Calls `step(context, i)` for each i below `count`, each on a thread of its own, the first on the caller's; where no
/// thread can be started, on the caller's too. Returns when all are done.
PINFOLD_EXPORT void run_together(std::size_t count, void* context, void (*step)(void*, std::size_t) noexcept) noexcept;

/// The same for a callable, which must not throw.
template <class F>
void run_together(std::size_t count, F& step) noexcept {
  run_together(count, &step, [](void* context, std::size_t i) noexcept { (*static_cast<F*>(context))(i); });
}

}  // namespace pinfold::detail

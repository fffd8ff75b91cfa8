// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs a few steps in parallel. Not for users; it may change in any release.
#pragma once

#include <pinfold/export.hpp>

#include <cstddef>

namespace pinfold::detail {

/// Calls `step(context, i)` for each i below `count`: the first on the caller's thread, each other on a thread of its
/// own, or on the caller's thread if no thread can be started. Returns when all calls have returned.
PINFOLD_EXPORT void run_together(std::size_t count, void* context, void (*step)(void*, std::size_t) noexcept) noexcept;

/// As above, for a callable, which must not throw.
template <class F>
void run_together(std::size_t count, F& step) noexcept {
  run_together(count, &step, [](void* context, std::size_t i) noexcept { (*static_cast<F*>(context))(i); });
}

}  // namespace pinfold::detail

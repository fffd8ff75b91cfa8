// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Included before every source of the explored build: the points of a hit are scheduling points.
#pragma once

namespace pinfold::explore {
/// A scheduling point: the thread may lose its turn here. Does nothing outside of an exploration.
void point(const char* what) noexcept;
}  // namespace pinfold::explore

#define PINFOLD_SYNC_POINT(name) ::pinfold::explore::point(#name)

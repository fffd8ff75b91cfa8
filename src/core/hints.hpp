// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The threads' hints to the records that they hit recently.
#pragma once

namespace pinfold::core {

/// Clears the hints of all threads. For the first cache of a process: a child of fork(2) has its parent's hints, and
/// copies of its parent's records. No cache of this process may have been hit yet.
void forget_hints() noexcept;

}  // namespace pinfold::core

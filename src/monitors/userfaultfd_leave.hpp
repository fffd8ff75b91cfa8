// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How memory leaves the watch of a userfaultfd before it is unmapped.
#pragma once

#include <pinfold/range.hpp>

namespace pinfold::monitors::uffd {

/// A `watch::leave_function`. Two system calls, a microsecond for any size. Does nothing where it cannot, or where any
/// of the pages is another userfaultfd's: then the kernel tells, and the caller waits.
///
/// Meanwhile the kernel's own accesses to those of the pages that are not there yet fail (EFAULT); a thread's wait for
/// the monitor's thread.
void leave(int uffd, const range& pages) noexcept;

}  // namespace pinfold::monitors::uffd

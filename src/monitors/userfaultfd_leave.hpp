// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How memory leaves the watch of a userfaultfd before it is unmapped.
#pragma once

#include <pinfold/range.hpp>

#include <sys/types.h>

namespace pinfold::monitors::uffd {

/// Whom the userfaultfd belongs to from which memory leaves (`descriptor::belong_to`): `leave` does nothing to any
/// other.
void leave_for(pid_t thread) noexcept;

/// A `watch::leave_function`. Three system calls, a microsecond for any size. Does nothing where it cannot, or where
/// any of the pages is another userfaultfd's: then the kernel tells, and the caller waits.
///
/// Meanwhile the kernel's own accesses to those of the pages that are not there yet fail (EFAULT); a thread's wait for
/// the monitor's thread.
void leave(int uffd, const range& pages) noexcept;

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Takes memory out of a userfaultfd's watch before it is unmapped.
#pragma once

#include <pinfold/range.hpp>

#include <sys/types.h>

namespace pinfold::monitors::uffd {

/// Sets the owner of the userfaultfd from which memory leaves (`descriptor::belong_to`): `leave` does nothing to any
/// other.
void leave_for(pid_t thread) noexcept;

/// A `invalidation::unregister_function`. Three system calls, a microsecond for any size. Does nothing where it fails,
/// or where another userfaultfd watches any of the pages: then the kernel makes an event, and the caller waits.
///
/// Until the memory is unmapped, the kernel's own accesses to those of its pages that are not present fail (EFAULT); a
/// thread's access waits for the monitor's thread.
void leave(int uffd, const range& pages) noexcept;

}  // namespace pinfold::monitors::uffd

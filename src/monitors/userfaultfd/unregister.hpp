// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Takes memory out of a userfaultfd's watch before it is unmapped.
#pragma once

#include <pinfold/range.hpp>

#include <sys/types.h>

namespace pinfold::monitors::uffd {

/// Sets the owner of the userfaultfd from which memory leaves (`descriptor::belong_to`): `leave` changes no other
/// userfaultfd.
void leave_for(pid_t thread) noexcept;

/// An `invalidation::unregister_function`. Three system calls, a microsecond for any size. Does nothing if it fails, or
/// if another userfaultfd watches any of the pages: the kernel then makes an event, and the caller waits.
///
/// Until the memory is unmapped, the kernel's own accesses to those of its pages that are not present fail (EFAULT); a
/// thread's access waits for the monitor's thread.
void leave(int uffd, const range& pages) noexcept;

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Closes userfaultfds in children: a child of fork(2) gets copies of its parent's descriptors, and would act on its
/// parent's memory.
#pragma once

#include "monitors/userfaultfd/kernel.hpp"

namespace pinfold::monitors::uffd {

/// From now on children close these descriptors before anything else. Returns an error while other descriptors are
/// kept: a process has one pair at a time.
[[nodiscard]] result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept;

/// Undoes `keep_from_children`. Called after the descriptors were closed.
void forget_for_children() noexcept;

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Closes userfaultfds in children: a child of fork(2) gets copies of its parent's descriptors, and would act on its
/// parent's memory.
#pragma once

#include "monitors/userfaultfd/kernel.hpp"

namespace pinfold::monitors::uffd {

/// While one exists, fork(2) waits, at most a second, so that no child inherits a descriptor that is made but not yet
/// noted.
class no_fork {
 public:
  no_fork() noexcept;
  no_fork(const no_fork&) = delete;
  no_fork& operator=(const no_fork&) = delete;
  ~no_fork();

 private:
  bool held_;
};

/// From now on children close these descriptors first of all. Returns an error while other descriptors are kept: one
/// pair at a time in a process.
[[nodiscard]] result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept;

/// Ends that. Called after the descriptors were closed.
void forget_for_children() noexcept;

}  // namespace pinfold::monitors::uffd

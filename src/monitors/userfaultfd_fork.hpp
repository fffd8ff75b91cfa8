// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A child of fork(2) gets copies of its parent's descriptors, and with a userfaultfd would act on its parent's memory.
#pragma once

#include "monitors/userfaultfd_kernel.hpp"

namespace pinfold::monitors::uffd {

/// While one exists, fork(2) waits, a second at most: a child does not know a descriptor that is made, but not noted.
class no_fork {
 public:
  no_fork() noexcept;
  no_fork(const no_fork&) = delete;
  no_fork& operator=(const no_fork&) = delete;
  ~no_fork();

 private:
  bool held_;
};

/// From now on children close these as the first thing they do. Once at a time in a process: an error while others are.
[[nodiscard]] result<void> keep_from_children(const descriptor& uffd, const descriptor& maps) noexcept;

/// No longer. After they were closed.
void forget_for_children() noexcept;

}  // namespace pinfold::monitors::uffd

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A thread's own table of descriptors.
#pragma once

#include "os/check.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <span>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

/// Gives the calling thread a table of its own, with these of the process's descriptors, in ascending order, and no
/// others: a program that closes every descriptor it finds does not close these, and descriptors that other threads
/// close do not stay open here. Returns 0 or an `errno` value. Allocates nothing and takes no lock.
[[nodiscard]] inline int keep_only(std::span<const int> kept) noexcept {
  PINFOLD_ASSERT(!kept.empty() && kept.front() >= 0 && std::is_sorted(kept.begin(), kept.end()),
                 "the descriptors are open and in order");
  constexpr unsigned unshare = 2;  // CLOSE_RANGE_UNSHARE
  if (::syscall(SYS_close_range, static_cast<unsigned>(kept.back()) + 1, UINT_MAX, unshare) != 0) return errno;
  unsigned next = 0;
  for (const int one : kept) {
    const auto number = static_cast<unsigned>(one);
    if (next < number && ::syscall(SYS_close_range, next, number - 1, 0U) != 0) return errno;
    next = number + 1;
  }
  return 0;
}

}  // namespace pinfold::os

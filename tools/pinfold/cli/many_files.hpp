// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The limit of descriptors that a service needs, not that of a program that may use select(2).
#pragma once

#include <sys/resource.h>

namespace tool {

/// Raises RLIMIT_NOFILE as far as this process may.
inline void allow_many_files() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace tool

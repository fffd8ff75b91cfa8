// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Limits the number of threads that a process can start.
#pragma once

#include "support/host/process_limits.hpp"

#include <cstddef>
#include <pthread.h>

namespace pinfold::testing {

/// While it lives, there is room for the stacks of only that many more threads.
class room_for_threads {
 public:
  explicit room_for_threads(std::size_t count) : room_(RLIMIT_AS, address_space_used() + count * stack + stack / 2) {
    ::pthread_attr_init(&before_);
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, stack);
    ::pthread_setattr_default_np(&large);
    ::pthread_attr_destroy(&large);
  }
  room_for_threads(const room_for_threads&) = delete;
  room_for_threads& operator=(const room_for_threads&) = delete;
  ~room_for_threads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  static constexpr std::size_t stack = std::size_t{64} << 20U;  // more than the C library keeps for reuse
  lowered_limit room_;
  pthread_attr_t before_;
};

}  // namespace pinfold::testing

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes system calls without libc's functions, which are hooked and set errno.
#pragma once

#include "invalidation/own_code.hpp"

namespace pinfold::monitors {

/// Returns the kernel's result: negative for an error.
inline long system_call(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0, unsigned long d = 0,
                        unsigned long e = 0, unsigned long f = 0) noexcept {
  return invalidation::own_system_call(number, a, b, c, d, e, f);
}

}  // namespace pinfold::monitors

// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A system call by no function of libc's: those are what is hooked, and they set errno.
#pragma once

#include "watch/own_code.hpp"

namespace pinfold::monitors {

/// The kernel's own answer: negative for an error.
inline long system_call(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0, unsigned long d = 0,
                        unsigned long e = 0, unsigned long f = 0) noexcept {
  return watch::own_system_call(number, a, b, c, d, e, f);
}

}  // namespace pinfold::monitors

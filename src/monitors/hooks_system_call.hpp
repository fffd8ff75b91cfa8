// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A system call by no function of libc's: those are what is hooked, and they set errno.
#pragma once

#include <cerrno>

namespace pinfold::monitors {

/// The kernel's own answer: negative for an error.
inline long system_call(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0, unsigned long d = 0,
                        unsigned long e = 0, unsigned long f = 0) noexcept {
#if defined(__x86_64__)
  register unsigned long r10 asm("r10") = d;
  register unsigned long r8 asm("r8") = e;
  register unsigned long r9 asm("r9") = f;
  long answer = number;
  asm volatile("syscall" : "+a"(answer) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return answer;
#else
  static_cast<void>(number + static_cast<long>(a + b + c + d + e + f));
  return -ENOSYS;
#endif
}

}  // namespace pinfold::monitors

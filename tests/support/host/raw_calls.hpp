// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// System calls as made by a program without libc, or with inlined calls.
#pragma once

#include <cerrno>
#include <sys/syscall.h>

namespace pinfold::testing {

#if defined(__x86_64__)
inline constexpr bool has_raw_calls = true;

inline long raw_call(long number, const void* at, unsigned long b, long c = 0, long d = 0, long e = 0) noexcept {
  long result = number;
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  register long sixth asm("r9") = 0;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(at), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
}
#else
inline constexpr bool has_raw_calls = false;

inline long raw_call(long, const void*, unsigned long, long = 0, long = 0, long = 0) noexcept { return -ENOSYS; }
#endif

}  // namespace pinfold::testing

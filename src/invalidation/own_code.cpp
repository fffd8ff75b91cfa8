// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/own_code.hpp"

#include "os/check.hpp"

#include <array>
#include <atomic>
#include <cerrno>

#if defined(__x86_64__)
// The linker derives these symbols from a section's name. Hidden: each program and library that links this code has its
// own.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __start_pinfold_system_calls[];  // NOLINT(bugprone-reserved-identifier)
[[gnu::visibility("hidden")]] extern const char __stop_pinfold_system_calls[];   // NOLINT(bugprone-reserved-identifier)
}
#endif

namespace pinfold::invalidation {

namespace {

struct noted_range {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
};
std::array<noted_range, 16> noted;

}  // namespace

#if defined(__x86_64__)
[[gnu::noinline, gnu::section("pinfold_system_calls")]] long own_system_call(long number, unsigned long a,
                                                                             unsigned long b, unsigned long c,
                                                                             unsigned long d, unsigned long e,
                                                                             unsigned long f) noexcept {
  register unsigned long r10 asm("r10") = d;
  register unsigned long r8 asm("r8") = e;
  register unsigned long r9 asm("r9") = f;
  long answer = number;
  asm volatile("syscall" : "+a"(answer) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return answer;
}
#else
long own_system_call(long /*number*/, unsigned long /*a*/, unsigned long /*b*/, unsigned long /*c*/,
                     unsigned long /*d*/, unsigned long /*e*/, unsigned long /*f*/) noexcept {
  return -ENOSYS;
}
#endif

// Notes a range of own code. A range without a free slot counts as foreign code: the cache then keeps less.
void note_own_code(const range& made) noexcept {
  PINFOLD_ASSERT(made.begin < made.end, "own code has a byte at least");
  for (auto& one : noted) {
    if (one.end.load(std::memory_order_relaxed) != 0) continue;
    one.begin.store(made.begin, std::memory_order_relaxed);
    one.end.store(made.end, std::memory_order_release);
    return;
  }
}

range own_system_call_code() noexcept {
#if defined(__x86_64__)
  return {reinterpret_cast<std::uintptr_t>(&__start_pinfold_system_calls[0]),
          reinterpret_cast<std::uintptr_t>(&__stop_pinfold_system_calls[0])};
#else
  return {};
#endif
}

bool is_own_code(std::uintptr_t address) noexcept {
  if (own_system_call_code().contains({address, address + 1})) return true;
  for (const auto& one : noted)
    if (address < one.end.load(std::memory_order_acquire) && address >= one.begin.load(std::memory_order_relaxed))
      return true;
  return false;
}

}  // namespace pinfold::invalidation

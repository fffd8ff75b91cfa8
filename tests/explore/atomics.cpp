// SPDX-License-Identifier: BSD-3-Clause
// What the compiler calls for each access to memory in code that is instrumented for ThreadSanitizer, whose library is
// not linked: an access to an atomic variable is a scheduling point, others are nothing.
#include "scheduler.hpp"

#include <cstdint>

using pinfold::explore::all_threads;

// One thread runs at a time, so the order that the program asked for does not matter.
#define PINFOLD_CHANGE(bits, name, builtin)                                                                     \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* at, std::uint##bits##_t value, \
                                                   int /*order*/) noexcept {                                    \
    all_threads.atomic_point(at, true);                                                                         \
    return builtin(at, value, __ATOMIC_SEQ_CST);                                                                \
  }
#define PINFOLD_EXCHANGE_IF(bits, name)                                                                              \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile std::uint##bits##_t* at, std::uint##bits##_t* expected, \
                                                    std::uint##bits##_t wanted, int /*order*/,                       \
                                                    int /*otherwise*/) noexcept {                                    \
    all_threads.atomic_point(at, true);                                                                              \
    return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? 1 : 0;     \
  }
#define PINFOLD_ATOMIC(bits)                                                                                       \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int /*order*/) noexcept { \
    all_threads.atomic_point(at, false);                                                                           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                  \
  }                                                                                                                \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value,                    \
                                   int /*order*/) noexcept {                                                       \
    all_threads.atomic_point(at, true);                                                                            \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                                \
  PINFOLD_CHANGE(bits, exchange, __atomic_exchange_n)                                                              \
  PINFOLD_CHANGE(bits, fetch_add, __atomic_fetch_add)                                                              \
  PINFOLD_CHANGE(bits, fetch_sub, __atomic_fetch_sub)                                                              \
  PINFOLD_CHANGE(bits, fetch_and, __atomic_fetch_and)                                                              \
  PINFOLD_CHANGE(bits, fetch_or, __atomic_fetch_or)                                                                \
  PINFOLD_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                                                              \
  PINFOLD_EXCHANGE_IF(bits, strong)                                                                                \
  PINFOLD_EXCHANGE_IF(bits, weak)                                                                                  \
  std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                                  \
      volatile std::uint##bits##_t* at, std::uint##bits##_t expected, std::uint##bits##_t wanted, int /*order*/,   \
      int /*otherwise*/) noexcept {                                                                                \
    __tsan_atomic##bits##_compare_exchange_strong(at, &expected, wanted, 0, 0);                                    \
    return expected;                                                                                               \
  }
#define PINFOLD_ACCESS(name) \
  void __tsan_##name(void*) noexcept {}
#define PINFOLD_ACCESSES(bytes)          \
  PINFOLD_ACCESS(read##bytes)            \
  PINFOLD_ACCESS(write##bytes)           \
  PINFOLD_ACCESS(unaligned_read##bytes)  \
  PINFOLD_ACCESS(unaligned_write##bytes) \
  PINFOLD_ACCESS(read_write##bytes)      \
  PINFOLD_ACCESS(volatile_read##bytes)   \
  PINFOLD_ACCESS(volatile_write##bytes)

extern "C" {
PINFOLD_ATOMIC(8)
PINFOLD_ATOMIC(16)
PINFOLD_ATOMIC(32)
PINFOLD_ATOMIC(64)
PINFOLD_ACCESSES(1)
PINFOLD_ACCESSES(2)
PINFOLD_ACCESSES(4)
PINFOLD_ACCESSES(8)
PINFOLD_ACCESSES(16)
PINFOLD_ACCESS(func_entry)
void __tsan_init() noexcept {}
void __tsan_func_exit() noexcept {}
void __tsan_read_range(void*, std::size_t) noexcept {}
void __tsan_write_range(void*, std::size_t) noexcept {}
void __tsan_vptr_update(void**, void*) noexcept {}
void __tsan_vptr_read(void**) noexcept {}
void __tsan_atomic_thread_fence(int) noexcept {}
void __tsan_atomic_signal_fence(int) noexcept {}
}
